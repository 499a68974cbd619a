"""What a run has written beside what it saved, and the folders that it made for that, go once no other run uses them.

Else a script that looks for its last checkpoint would find a folder, or a file that names one, and no checkpoint.
"""

import contextlib
import os
import platform
import stat
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from dsopt.launch.emptied import is_room, remove_empty, remove_rooms
from dsopt.launch.processes import run_dirs_here
from dsopt.launch.taken import take_early, take_pointers, take_written
from dsopt.launch.told import told_here
from dsopt.protocol.events import Moved, Saved
from dsopt.protocol.private import append_lines
from dsopt.protocol.run_dir import RunDir

Living: TypeAlias = Sequence[tuple[Path, Path]]  # runs of this machine, each with its working folder

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
    if any(path.parent == run_dir.path.parent and path != run_dir.path for path, _ in living):
        _leave(run_dir, min(until_ns, time.time_ns()))
    else:
        _tidy_unused(run_dir, told, until_ns, loud, living)


def tidy_left(results: Path, *, is_last: bool = False) -> bool:
    """Does the same for runs of a results folder for which it could not be done when they ended.

    Args:
        results: the folder.
        is_last: a training begins now, and must find nothing that another study's run might read.

    Returns:
        Whether something had to stay.
    """
    left_in, claimed = _left_in(results), results / f"{_LEFT}{uuid.uuid4().hex}"
    living = [*run_dirs_here()] if left_in.exists() else []
    if any(path.parent == results for path, _ in living):
        return True
    try:
        left_in.rename(claimed)  # whoever else comes finds none
        lines = claimed.read_text("utf-8", errors="replace").splitlines()
        claimed.unlink()
    except OSError:
        return False
    found = [(RunDir(results / name), until) for name, until in (line.rpartition("\t")[::2] for line in lines)]
    left = {
        run_dir.path: (run_dir, int(until)) for run_dir, until in found if until.isdigit() and run_dir.mark.exists()
    }
    loud = {path: loud_folders(run_dir, until_ns) for path, (run_dir, until_ns) in left.items()}
    for path, (run_dir, until_ns) in left.items():
        if run_dir.undone.exists():
            _tidy_unused(run_dir, told_here(run_dir, Saved), until_ns, loud[path], living, is_last=is_last)
        else:  # it was started again
            _leave(run_dir, until_ns)
    return left_in.exists()


def _left_in(results: Path) -> Path:
    return results / f"{_LEFT}{platform.node().replace(os.sep, '_')}"


def _leave(run_dir: RunDir, until_ns: int) -> None:
    with contextlib.suppress(OSError), append_lines(_left_in(run_dir.path.parent)) as lines:
        lines.write(f"{run_dir.path.name}\t{until_ns}\n")


def _tidy_unused(
    run_dir: RunDir, told: Sequence[Saved], until_ns: int, loud: set[str], living: Living, *, is_last: bool = False
) -> None:
    """Does it where no run of another study has anything there.

    While one works in or above a folder, what it may have found there, to read it or to save to it, stays.
    """
    made = {Path(event.path) for event in told if os.path.isdir(event.path) and not is_room(event)}  # noqa: PTH112
    others = [RunDir(path) for path in dict(living) if path != run_dir.path]
    if _is_shared(made, others):
        _leave(run_dir, min(until_ns, time.time_ns()))
        return
    folders = set() if is_last else {working for path, working in living if path != run_dir.path}
    is_used = any(not folders.isdisjoint(Path(event.path).parents) for event in told)
    kept = loud | (
        {str(folder) for folder in made if folder.parent not in made and _is_common(folder)} if is_used else set()
    )
    remove_rooms(told)
    take_written(run_dir, told, until_ns)
    remove_empty(run_dir, told, until_ns, kept)
    if is_used:
        _leave(run_dir, min(until_ns, time.time_ns()))
        return
    take_early(run_dir, told, until_ns)
    remove_empty(run_dir, told, until_ns, kept)
    take_pointers(run_dir, told, until_ns)


def _is_shared(made: set[Path], others: Sequence[RunDir]) -> bool:
    """Whether another run has written to, or moved something in, a folder that one has made."""
    theirs = {Path(event.path) for other in others for event in told_here(other, Saved)}
    theirs |= {Path(event.path) for other in others for event in told_here(other, Moved)}
    return bool(made) and any(path in made or not made.isdisjoint(path.parents) for path in theirs)


def _is_common(folder: Path) -> bool:
    """Whether a folder may be for all trainings, such as `checkpoints`: those of one have a number or a time."""
    return not any(letter.isdigit() for letter in folder.name)
