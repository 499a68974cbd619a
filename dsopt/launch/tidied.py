"""What a run has written beside what it saved, and the folders that it made for that, go once no other run uses them.

Else a script that looks for its last checkpoint would find a folder, or a file that names one, and no checkpoint.
"""

import contextlib
import os
import platform
import re
import stat
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from dsopt.launch.beside import young_in
from dsopt.launch.emptied import is_room, is_there, remove_empty, remove_rooms
from dsopt.launch.maker import as_from_here, from_here, is_seen_here
from dsopt.launch.processes import is_marked, run_dirs_here
from dsopt.launch.taken import is_common, take_early, take_pointers, take_written
from dsopt.launch.told import told_ever_here
from dsopt.protocol.events import Found, Moved, Saved
from dsopt.protocol.private import append_lines
from dsopt.protocol.run_dir import RunDir

Living: TypeAlias = Sequence[tuple[Path, Path]]  # runs of this machine, each with its working folder

SIGN_NS: Final = 20_000_000_000  # without a sign, which a guard gives every few seconds, a run has ended
_FAST_NS: Final = 60_000_000_000  # by which a clock may be; a later date is none
_DAY_SECONDS: Final = 86_400.0
_LEFT: Final = ".dsopt-left-"  # in a results folder, and a machine: runs whose folders others used, a line each
_CLAIMED: Final = re.compile("[0-9a-f]{32}")  # in its place, while somebody is at it


def loud_folders(run_dir: RunDir, until_ns: int) -> set[str]:
    """The folders that a run has told to have made, and in which something has come or gone since then."""
    found = set[str]()
    for event in told_ever_here(run_dir, Saved):
        with contextlib.suppress(OSError):
            status = os.lstat(event.path)
            if stat.S_ISDIR(status.st_mode) and status.st_mtime_ns > until_ns:
                found.add(event.path)
    return found


def tidy(run_dir: RunDir, until_ns: int, loud: set[str]) -> None:
    """Removes folders that a run has made, and takes what it has written beside what it saved to its own folder.

    While a run of the study goes on, they stay, and so does what one of another study may use; who undoes the last one,
    or begins to work or to train, removes them.

    Args:
        run_dir: of the run; what it saved is gone.
        until_ns: what is newer, in nanoseconds since the epoch, is the user's.
        loud: its `loud_folders`, before any of that was removed.
    """
    living = _living() if told_ever_here(run_dir, Saved) else None
    if living is not None and any(path != run_dir.path for path in _going_on_in(run_dir.path.parent, living)):
        _leave(run_dir, min(until_ns, time.time_ns()))
    else:
        _tidy_now(run_dir, until_ns, loud, living or [])


def tidy_left(results: Path, *, for_training: bool = False) -> Sequence[Path]:
    """Does the same for runs of a results folder for which it could not be done when they ended.

    Args:
        results: the folder.
        for_training: a training begins now, and must find nothing that another study's run might read.

    Returns:
        The folders of runs of which something had to stay.
    """
    if not any(results.glob(f"{_LEFT}*")):
        return []
    living = _living()
    if siblings := _going_on_in(results, living):
        return siblings
    listed = [*_claimed(results), *_of_other_machines(results)]
    found = [(run_dir, until_ns) for run_dir, until_ns in listed if run_dir.mark.exists()]
    every_loud = [_loud_by_others(run_dir, until_ns) for run_dir, until_ns in found]
    stayed = []
    for (run_dir, until_ns), loud in zip(found, every_loud, strict=True):
        try:
            if not run_dir.undone.exists():  # it was started again
                _leave(run_dir, until_ns)
            elif not _tidy_now(run_dir, until_ns, loud, living, for_training=for_training):
                stayed.append(run_dir.path)
        except OSError:
            _leave(run_dir, until_ns)
            stayed.append(run_dir.path)
    return stayed


def _claimed(results: Path) -> list[tuple[RunDir, int]]:
    """What is listed for this machine: whoever else comes finds nothing."""
    claimed = results / f"{_LEFT}{uuid.uuid4().hex}"
    try:
        _left_in(results).rename(claimed)
        found = _listed(claimed)
        claimed.unlink()
    except OSError:
        return []
    return [(RunDir(results / name, host or None), until_ns) for (name, host), until_ns in found.items()]


def _of_other_machines(results: Path) -> list[tuple[RunDir, int]]:
    """What others have listed of runs whose working folder this machine has, too. It stays listed for them."""
    found = []
    for path in results.glob(f"{_LEFT}*"):
        machine = path.name.removeprefix(_LEFT)
        if path == _left_in(results) or _CLAIMED.fullmatch(machine) or _is_old(path):
            continue
        for (name, host), until_ns in _listed(path).items():
            run_dir = RunDir(results / name)
            if from_here(run_dir).host == as_from_here(run_dir).host and (host or machine) != platform.node():
                found.append((RunDir(results / name, host or machine), until_ns))
    return found


def _is_old(path: Path) -> bool:
    """Whether nobody has listed anything there for a month, such as a container whose name will not come back."""
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > 30 * _DAY_SECONDS
    return True


def _listed(path: Path) -> dict[tuple[str, str], int]:
    """What a list names: runs, each with the machine that it is undone for, and until when it may have written."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {(name, host): int(until) for name, host, until in map(_read, lines) if name and until.isdigit()}


def _loud_by_others(run_dir: RunDir, until_ns: int) -> set[str]:
    """A run's `loud_folders`, without empty ones in which later runs of its study have saved, and been undone."""
    with contextlib.suppress(OSError):
        until_ns = max(until_ns, run_dir.undone.stat().st_mtime_ns)  # what went with the run has changed them
    return {path for path in loud_folders(run_dir, until_ns) if not _is_emptied(Path(path), run_dir.path.parent)}


def _is_emptied(folder: Path, results: Path) -> bool:
    with contextlib.suppress(OSError):
        changed = folder.stat().st_mtime_ns
        if any(folder.iterdir()):
            return False
        for run_dir in map(from_here, map(RunDir, results.iterdir())):
            is_later = not run_dir.undone.exists() or run_dir.undone.stat().st_mtime_ns >= changed
            if is_later and any(folder in Path(event.path).parents for event in told_ever_here(run_dir, Saved)):
                return True
    return False


def _living() -> Living:
    return [(path, working) for path, working in run_dirs_here() if is_marked(path)]


def _going_on_in(results: Path, living: Living) -> list[Path]:
    """The runs in a results folder that go on, on whatever machine: those whose processes nobody sees here, by signs.

    `living`: those that are seen.
    """
    found = [path for path, _ in living if path.parent == results]
    young = list[RunDir]()
    with contextlib.suppress(OSError):  # the folder has gone
        young += young_in(results, time.time() - _DAY_SECONDS)  # a run makes files when it begins
    for run_dir in young:
        with contextlib.suppress(OSError):
            if run_dir.undone.exists() or not run_dir.may_go_on or run_dir.path in found:
                continue
            if not run_dir.is_own or is_seen_here(run_dir):
                continue
            if -_FAST_NS <= run_dir.now_ns() - run_dir.last_sign_ns() <= SIGN_NS:
                found.append(run_dir.path)
    return found


def is_left(run_dir: RunDir) -> bool:
    """Whether something of a run still has to be tidied on this machine."""
    return any(name == run_dir.path.name for name, _ in _listed(_left_in(run_dir.path.parent)))


def _read(line: str) -> tuple[str, str, str]:
    name, _, rest = line.partition("\t")
    host, _, until = rest.rpartition("\t")
    return name, host, until


def _left_in(results: Path) -> Path:
    return results / f"{_LEFT}{platform.node().replace(os.sep, '_')}"


def _leave(run_dir: RunDir, until_ns: int) -> None:
    with contextlib.suppress(OSError), append_lines(_left_in(run_dir.path.parent)) as lines:
        lines.write("\t".join([run_dir.path.name, run_dir.host or "", str(until_ns)]) + "\n")


def _tidy_now(run_dir: RunDir, until_ns: int, loud: set[str], living: Living, *, for_training: bool = False) -> bool:
    """Does it, and leaves what a run of another study may need for later. Returns whether that is nothing.

    That is a folder, too, that one wanted to make. While one works in or above a folder that may be for all trainings,
    it may have seen it, and save to it.
    """
    told = told_ever_here(run_dir, Saved)
    made = {Path(event.path) for event in told if is_there(event) and not is_room(event)}
    others = [RunDir(path) for path in dict(living) if path != run_dir.path]
    theirs = _told_by(others)
    if any(path in made or not made.isdisjoint(path.parents) for path in theirs):
        _leave(run_dir, min(until_ns, time.time_ns()))
        return False
    shared = {event.path for event in told if event.is_plain and Path(event.path) in theirs} if theirs else set[str]()
    told = [event for event in told if event.path not in shared]
    folders = set() if for_training else {working for path, working in living if path != run_dir.path}
    topmost = {folder for folder in made if folder.parent not in made and is_common(folder)}
    found = {Path(event.path) for other in others for event in told_ever_here(other, Found)}
    with_found = made & {folder for path in found for folder in (path, *path.parents)}
    used = {str(f) for f in {*with_found, *(one for one in topmost if not folders.isdisjoint(one.parents))}}
    remove_rooms(told)
    take_written(run_dir, told, until_ns)
    remove_empty(run_dir, told, until_ns, loud | used)
    take_early(run_dir, told, until_ns, is_alone=not _work_there(made, folders))
    remove_empty(run_dir, told, until_ns, loud | used)
    take_pointers(run_dir, told, {folder for folder in made if not folder.exists()}, until_ns)
    if any(map(os.path.lexists, shared | used - loud)):
        _leave(run_dir, min(until_ns, time.time_ns()))
        return False
    return True


def _work_there(made: set[Path], folders: set[Path]) -> bool:
    """Whether runs of other studies work in or above any of the folders that one has made."""
    return any(not folders.isdisjoint((folder, *folder.parents)) for folder in made)


def _told_by(others: Sequence[RunDir]) -> set[Path]:
    """What other runs have written to, or moved."""
    saved = {Path(event.path) for other in others for event in told_ever_here(other, Saved)}
    return saved | {Path(event.path) for other in others for event in told_ever_here(other, Moved)}
