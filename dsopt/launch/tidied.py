"""What a run has written beside what it saved, and the folders that it made for that, go once no other run uses them.

Else a script that looks for its last checkpoint would find a folder, or a file that names one, and no checkpoint.
"""

import contextlib
import os
import platform
import shutil
import stat
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dsopt.launch.processes import run_dirs_here
from dsopt.launch.put_back import keep
from dsopt.launch.saved import is_much, is_older
from dsopt.launch.told import told_here, told_last
from dsopt.protocol.birth import birth_ns, has_birth
from dsopt.protocol.checkpoint_names import LOCK
from dsopt.protocol.events import Moved, Saved
from dsopt.protocol.file_events import identity_of
from dsopt.protocol.private import append_lines
from dsopt.protocol.run_dir import ASIDE, RunDir

_LEFT: Final = ".dsopt-left-"  # in a results folder, and a machine: runs whose folders others used, each with a time


def loud_folders(run_dir: RunDir, until_ns: int) -> set[str]:
    """The folders that a run has told to have made, and in which something has come or gone since then."""
    found = set[str]()
    for event in told_here(run_dir, Saved):
        with contextlib.suppress(OSError):
            status = os.lstat(event.path)
            if stat.S_ISDIR(status.st_mode) and status.st_mtime_ns > until_ns:
                found.add(event.path)
    return found


def tidy(run_dir: RunDir, until_ns: int, loud: set[str]) -> None:
    """Removes folders that a run has made, and takes what it has written beside what it saved to its own folder.

    While a run that goes on may use them, they stay; who undoes the last one, or begins to work, removes them.

    Args:
        run_dir: of the run; what it saved is gone.
        until_ns: what is newer, in nanoseconds since the epoch, is the user's.
        loud: its `loud_folders`, before any of that was removed.
    """
    told = told_here(run_dir, Saved)
    living = [*run_dirs_here()] if told else []
    if _is_used(run_dir, told, living):
        _leave(run_dir, min(until_ns, time.time_ns()))
    else:
        _tidy(run_dir, told, until_ns, loud)


def tidy_left(results: Path) -> None:
    """Does the same for runs of a results folder for which it could not be done when they ended."""
    claimed = results / f"{_LEFT}{uuid.uuid4().hex}"
    try:
        _left_in(results).rename(claimed)  # whoever else comes finds none
        lines = claimed.read_text("utf-8", errors="replace").splitlines()
        claimed.unlink()
    except OSError:
        return
    found = [(RunDir(results / name), until) for name, until in (line.rpartition("\t")[::2] for line in lines)]
    left = {
        run_dir.path: (run_dir, int(until)) for run_dir, until in found if until.isdigit() and run_dir.mark.exists()
    }
    living = [*run_dirs_here()]
    loud = {path: loud_folders(run_dir, until_ns) for path, (run_dir, until_ns) in left.items()}
    for path, (run_dir, until_ns) in left.items():
        told = told_here(run_dir, Saved)
        if not run_dir.undone.exists() or _is_used(run_dir, told, living):  # or it was started again
            _leave(run_dir, until_ns)
        else:
            _tidy(run_dir, told, until_ns, loud[path])


def _left_in(results: Path) -> Path:
    return results / f"{_LEFT}{platform.node().replace(os.sep, '_')}"


def _leave(run_dir: RunDir, until_ns: int) -> None:
    with contextlib.suppress(OSError), append_lines(_left_in(run_dir.path.parent)) as lines:
        lines.write(f"{run_dir.path.name}\t{until_ns}\n")


def _tidy(run_dir: RunDir, told: Sequence[Saved], until_ns: int, loud: set[str]) -> None:
    _remove_rooms(told)
    _take_written(run_dir, told, until_ns)
    _take_early(run_dir, told, until_ns)
    _remove_links(told, until_ns)
    _remove_last_made(run_dir, until_ns)
    _remove_folders(told, until_ns, loud)
    _remove_links(told, until_ns)  # those to folders


def _is_used(run_dir: RunDir, told: Sequence[Saved], living: Sequence[tuple[Path, Path]]) -> bool:
    """Whether another run of the same study goes on, or one that works in a folder with something of this one's."""
    others = [(path, working) for path, working in living if path != run_dir.path]
    is_sibling = bool(told) and any(path.parent == run_dir.path.parent for path, _ in others)
    return is_sibling or any(Path(event.path).is_relative_to(working) for _, working in others for event in told)


def _remove_rooms(told: Sequence[Saved]) -> None:
    """Removes what was being made in dsopt's own folders when somebody killed the run."""
    for room in (Path(event.path) for event in told if _is_room(event)):
        with contextlib.suppress(OSError):
            shutil.rmtree(room)
        with contextlib.suppress(OSError):
            room.parent.rmdir()  # unless it has others


def _is_room(event: Saved) -> bool:
    return Path(event.path).parent.name.endswith(ASIDE)


def _take_written(run_dir: RunDir, told: Sequence[Saved], until_ns: int) -> None:
    """Takes what a script has written anew beside what it saved to the run's own folder, unless it is large.

    What is empty, such as a lock, stays but in folders that the run has made. So does what came in the place of the
    user's, which is then in `replaced`. Of a folder that holds data the script has made, which stays, nothing is taken.
    """
    moved = told_here(run_dir, Moved)
    theirs, numbers = {event.path for event in moved}, {event.inode for event in moved}
    saved = [event for event in told if not event.is_plain and event.path not in theirs and not _is_room(event)]
    folders = {Path(event.path) for event in saved if os.path.isdir(event.path)}  # noqa: PTH112 - takes any text
    # a folder that a script has only made says nothing of what is beside it
    made = {event.path for event in saved if not event.inode}
    named = {Path(event.path) for event in saved if event.path not in made or event.changed}
    beside = {folder for path in named for folder in (path.parent, path.parent.parent)}
    later = [event for event in told if event.is_plain and event.born and not event.is_early]
    written = {(Path(event.path), event.inode, event.born) for event in later if event.inode not in numbers}
    of_saves = {
        path for path, _, _ in written if not (folders & named).isdisjoint(path.parents) or path.parent in beside
    }
    data = {path for path, _, _ in written if path not in of_saves and _stays(path)}
    with_data = {folder for path in data for folder in folders & {*path.parents}}
    for path, inode, born in written:
        with contextlib.suppress(OSError):
            found = path.lstat()
            is_it = identity_of(path) == (inode, born) and found.st_mtime_ns <= until_ns
            is_inside = not folders.isdisjoint(path.parents) and with_data.isdisjoint(path.parents)
            is_of_save = path in of_saves
            if not is_it or not (is_inside or (is_of_save and found.st_size > 0)) or is_older(path, run_dir):
                continue
            if not is_much(path):
                keep(path, run_dir.own_path("saved", ""))
            elif is_of_save:
                path.unlink()


def _take_early(run_dir: RunDir, told: Sequence[Saved], until_ns: int) -> None:
    """Takes what the script has written to folders that it made before its first step, and then saved weights in.

    A script that looks for its last run would find one without weights. Where data stays in a folder, so does all. A
    lock from then goes, too, unless it is empty: who would remove it was ended.
    """
    plain = [event for event in told if event.is_plain and event.born]
    begun = {Path(event.path) for event in plain if event.is_early and _is_folder(event)}
    files = {(Path(event.path), event.inode, event.born) for event in plain if not os.path.isdir(event.path)}  # noqa: PTH112
    gone = [
        Path(event.path) for event in told if not event.is_plain and event.changed and not os.path.lexists(event.path)
    ]
    folders = begun & {folder for path in gone for folder in path.parents}
    folders -= {folder for folder in folders if _holds_data(folder)}
    for path, inode, born in files:
        with contextlib.suppress(OSError):
            found = path.lstat()
            is_lock = LOCK.fullmatch(path.name) is not None and found.st_size > 0
            is_it = identity_of(path) == (inode, born) and found.st_mtime_ns <= until_ns
            if is_it and (is_lock or not folders.isdisjoint(path.parents)) and not is_older(path, run_dir):
                keep(path, run_dir.own_path("saved", ""))


def _is_folder(event: Saved) -> bool:
    """Whether the folder that an event tells of is there."""
    return os.path.isdir(event.path) and identity_of(Path(event.path)) == (event.inode, event.born)  # noqa: PTH112


def _holds_data(folder: Path) -> bool:
    """Whether something is in it that is too large for the run's own folder, whoever wrote it."""
    return any(_stays(Path(top, name)) for top, _, names in os.walk(folder) for name in names)


def _stays(path: Path) -> bool:
    """Whether a file is there, and too large for the run's own folder."""
    with contextlib.suppress(OSError):
        return is_much(path)
    return False


def _remove_last_made(run_dir: RunDir, until_ns: int) -> None:
    """Removes a folder that a rank was about to make when somebody killed it, if it did, and nothing is in it.

    Whatever else it had told after that, it would have told of the folder.
    """
    for path in (Path(event.path) for event in told_last(run_dir) if not event.inode):
        with contextlib.suppress(OSError):
            if has_birth(path) and run_dir.mark.stat().st_mtime_ns < (birth_ns(path) or 0) <= until_ns:
                path.rmdir()


def _remove_folders(told: Sequence[Saved], until_ns: int, loud: set[str]) -> None:
    """Removes folders that a run has made, and those in them of its time, inner ones first, if nothing is in them."""
    kept = [event for event in told if event.inode and event.path not in loud and not _is_room(event)]
    made = {(event.path, event.inode, event.born, bool(event.changed)) for event in kept}
    for path, inode, born, is_of_save in sorted(made, reverse=True):
        with contextlib.suppress(OSError):
            if identity_of(Path(path)) != (inode, born):
                continue
            for folder, _, _ in os.walk(path, topdown=False) if is_of_save and born else [(path, (), ())]:
                with contextlib.suppress(OSError):
                    if (birth_ns(Path(folder)) or 0) <= until_ns:
                        os.rmdir(folder)  # noqa: PTH106 - unless something is left in it


def _remove_links(told: Sequence[Saved], until_ns: int) -> None:
    """Removes links that the run has made and that point to nothing now, those to other such links, too."""
    links = {(Path(event.path), event.inode, event.born) for event in told if os.path.islink(event.path)}  # noqa: PTH114
    is_done = False
    while not is_done:
        is_done = True
        for path, inode, born in links:
            with contextlib.suppress(OSError):
                is_it = identity_of(path) == (inode, born) and path.lstat().st_mtime_ns <= until_ns
                if is_it and not path.exists():
                    path.unlink()
                    is_done = False
