"""What a run has written anew beside what it saved, which is gone: its own folder gets it.

Else a script that looks for its last checkpoint would find a file that names one, and no checkpoint.
"""

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dsopt.launch.emptied import is_room
from dsopt.launch.put_back import keep
from dsopt.launch.saved import is_much, is_older
from dsopt.launch.told import told_here
from dsopt.protocol.checkpoint_names import LOCK
from dsopt.protocol.events import Moved, Saved
from dsopt.protocol.file_events import identity_of
from dsopt.protocol.run_dir import RunDir

_POINTER_BYTES: Final = 4096


def take_written(run_dir: RunDir, told: Sequence[Saved], until_ns: int) -> None:
    """Takes what a script has written anew beside what it saved to the run's own folder, unless it is large.

    What is empty, such as a lock, stays but in folders that the run has made. So does what came in the place of the
    user's, which is then in `replaced`. Of a folder that holds data the script has made, which stays, nothing is taken.
    """
    moved = told_here(run_dir, Moved)
    theirs, numbers = {event.path for event in moved}, {event.inode for event in moved}
    saved = [event for event in told if not event.is_plain and event.path not in theirs and not is_room(event)]
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


def take_early(run_dir: RunDir, told: Sequence[Saved], until_ns: int) -> None:
    """Takes what the script has written to folders that it made before its first step, to save weights there.

    Those are folders that it then saved weights in; of a run that has saved none, any. A script that looks for its last
    run would find one without weights. Where data stays in a folder, so does all. A lock from then goes, too, unless it
    is empty: who would remove it was ended.
    """
    begun = {Path(event.path) for event in _early(told) if _is_folder(event)}
    files = {(Path(event.path), event.inode, event.born) for event in told if event.is_plain and event.born}
    saved = [Path(event.path) for event in told if not event.is_plain and event.changed]
    gone = {folder for path in saved if not os.path.lexists(path) for folder in path.parents}
    folders = {folder for folder in begun if (folder in gone or not saved) and not _holds_data(folder)}
    for path, inode, born in files:
        with contextlib.suppress(OSError):
            found = path.lstat()
            is_lock = LOCK.fullmatch(path.name) is not None and found.st_size > 0
            is_it = identity_of(path) == (inode, born) and found.st_mtime_ns <= until_ns
            is_file = not stat.S_ISDIR(found.st_mode)
            if is_it and is_file and (is_lock or not folders.isdisjoint(path.parents)) and not is_older(path, run_dir):
                keep(path, run_dir.own_path("saved", ""))


def take_pointers(run_dir: RunDir, told: Sequence[Saved], until_ns: int) -> None:
    """Takes short files from before the first step that name a folder which is gone, from beside or above it."""
    early = _early(told)
    gone = {Path(event.path) for event in early if not os.path.lexists(event.path)}
    for path, event in ((Path(event.path), event) for event in early):
        beside = [folder for folder in gone if path.parent in (folder.parent, folder.parent.parent)]
        with contextlib.suppress(OSError):
            found = path.lstat()
            if not beside or not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= _POINTER_BYTES:
                continue
            is_it = identity_of(path) == (event.inode, event.born) and found.st_mtime_ns <= until_ns
            if is_it and any(os.fsencode(folder.name) in path.read_bytes() for folder in beside):
                keep(path, run_dir.own_path("saved", ""))


def _early(told: Sequence[Saved]) -> list[Saved]:
    return [event for event in told if event.is_plain and event.is_early and event.born]


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
