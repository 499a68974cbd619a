"""What a run has written beside what it saved, and the folders that it made for that, go once no other run uses them.

Else a script that looks for its last checkpoint would find a folder, or a file that names one, and no checkpoint.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dsopt.launch.processes import run_dirs_here
from dsopt.launch.put_back import keep
from dsopt.launch.saved import is_much, is_older
from dsopt.launch.told import told_here
from dsopt.protocol.birth import birth_ns
from dsopt.protocol.events import Moved, Saved
from dsopt.protocol.private import append_private
from dsopt.protocol.run_dir import ASIDE, RunDir

_LEFT: Final = ".dsopt-left"  # in a results folder: the names of runs whose folders others used


def quiet_folders(run_dir: RunDir, until_ns: int) -> set[str]:
    """The folders that a run has told to have made, and in which nothing has come or gone since then."""
    found = set[str]()
    for event in told_here(run_dir, Saved):
        with contextlib.suppress(OSError):
            status = os.lstat(event.path)
            if stat.S_ISDIR(status.st_mode) and status.st_mtime_ns <= until_ns:
                found.add(event.path)
    return found


def tidy(run_dir: RunDir, until_ns: int, quiet: set[str]) -> None:
    """Removes folders that a run has made, and takes what it has written beside what it saved to its own folder.

    While a run that goes on may use them, they stay; who undoes the last one, or begins to work, removes them.

    Args:
        run_dir: of the run; what it saved is gone.
        until_ns: what is newer, in nanoseconds since the epoch, is the user's.
        quiet: its `quiet_folders`, before any of that was removed.
    """
    told = told_here(run_dir, Saved)
    if _is_used(run_dir, told):
        with append_private(run_dir.path.parent / _LEFT) as names:
            names.write(os.fsencode(run_dir.path.name) + b"\n")
    else:
        _remove_rooms(told)
        _take_written(run_dir, told, until_ns)
        _remove_folders(told, quiet)


def tidy_left(results: Path, until_ns: Callable[[RunDir], int]) -> None:
    """Does the same for runs of a results folder for which it could not be done when they ended."""
    claimed = results / f"{_LEFT}-{os.getpid()}"
    with contextlib.suppress(OSError):
        (results / _LEFT).rename(claimed)  # whoever else comes finds none
        names = claimed.read_bytes().split(b"\n")
        claimed.unlink()
        for run_dir in (RunDir(results / os.fsdecode(name)) for name in dict.fromkeys(names) if name):
            tidy(run_dir, until_ns(run_dir), quiet_folders(run_dir, until_ns(run_dir)))


def _is_used(run_dir: RunDir, told: Sequence[Saved]) -> bool:
    """Whether another run of the same study goes on, or one that works in a folder with something of this one's."""
    living = [(path, working) for path, working in run_dirs_here() if path != run_dir.path] if told else []
    is_sibling = any(path.parent == run_dir.path.parent for path, _ in living)
    return is_sibling or any(Path(event.path).is_relative_to(working) for _, working in living for event in told)


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

    What is empty, such as a lock, stays. So does what came in the place of the user's, which is then in `replaced`.
    """
    theirs = {event.path for event in told_here(run_dir, Moved)}
    saved = [Path(e.path) for e in told if not e.is_plain and e.path not in theirs and not _is_room(e)]
    beside = {folder for path in saved for folder in (path.parent, path.parent.parent)}
    folders = {path for path in saved if path.is_dir()}
    for path, inode, born in {(Path(e.path), e.inode, e.born) for e in told if e.is_plain and e.born}:
        with contextlib.suppress(OSError):
            found = path.lstat()
            is_it = (str(found.st_ino), str(birth_ns(path))) == (inode, born) and found.st_mtime_ns <= until_ns
            is_beside = path.parent in beside or not folders.isdisjoint(path.parents)
            if not is_it or not is_beside or not found.st_size or is_older(path, run_dir):
                continue
            if is_much(path):
                path.unlink()
            else:
                keep(path, run_dir.own_path("saved", ""))


def _remove_folders(told: Sequence[Saved], quiet: set[str]) -> None:
    """Removes folders that a run has made, inner ones first, if nothing is in them."""
    made = {(e.path, e.inode, e.born, bool(e.changed)) for e in told if e.path in quiet and not _is_room(e)}
    for path, inode, born, is_of_save in sorted(made, reverse=True):
        with contextlib.suppress(OSError):
            if (str(os.lstat(path).st_ino), str(birth_ns(Path(path)) or "")) != (inode, born):
                continue
            for folder, _, _ in os.walk(path, topdown=False) if is_of_save and born else [(path, (), ())]:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)  # noqa: PTH106 - unless something is left in it
