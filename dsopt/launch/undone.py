"""What a run has done to files outside its own folder is undone, whoever does it and whatever the run came to."""

import contextlib
import errno
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dsopt.launch.leftovers import remove_stale_build_locks
from dsopt.launch.maker import as_from_here, from_here
from dsopt.launch.outside import in_place_before_undone, note_after
from dsopt.launch.processes import processes_of
from dsopt.launch.put_back import put_back
from dsopt.launch.saved import remove_saved, remove_weights
from dsopt.launch.tidied import SIGN_NS, loud_folders, tidy, tidy_left
from dsopt.launch.told import is_own, told, told_here
from dsopt.protocol.events import Moved, Saved
from dsopt.protocol.presence import may_be_present
from dsopt.protocol.private import create_private
from dsopt.protocol.run_dir import RunDir

_SAVING_NS: Final = 60_000_000_000  # how long a rank may have written to one file since it last told anything
_PATIENCE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.01
_ELSEWHERE_NS: Final = 60_000_000_000  # how much longer another machine has to be silent: its clock is its own
_CANNOT_TELL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE)
_DAY_NS: Final = 86_400_000_000_000
_NEVER_NS: Final = 2**63  # an archive may hold any date


def undo(run_dir: RunDir, *, is_late: bool = False) -> None:
    """Removes what the run has saved, and puts back what it moved, once. Its processes on this machine are gone.

    What cannot be put back, as on a full disk, or because somebody else is at it and does not end, is tried again when
    a worker or a training begins (`undo_left`), and `dsopt doctor` names it.

    `is_late`: nobody was there when they ended, so that others may have written to its files since.
    """
    with _alone_with(run_dir) as is_alone:
        if is_alone:
            _undo(run_dir, is_late=is_late)


def undo_elsewhere(run_dir: RunDir) -> None:
    """The same for a run of another machine, whose worker is lost, where both have the same files.

    It would have ended the run in time; a guard that still lives would show.
    """
    if not is_own(run_dir) or (run_dir := from_here(run_dir)).host is None or run_dir.undone.exists():
        return
    is_silent = run_dir.now_ns() - run_dir.last_sign_ns() > SIGN_NS
    if is_silent and not may_be_present(run_dir, is_hidden=False):
        undo(run_dir, is_late=True)


def undo_lost(run_dir: RunDir) -> None:
    """The same for a run of this machine, perhaps of another container of it, whose processes are gone."""
    undo(from_here(run_dir), is_late=True)


def _undo(run_dir: RunDir, *, is_late: bool) -> None:
    if run_dir.undone.exists() or not is_own(run_dir):
        return
    with contextlib.suppress(OSError):  # a cache of another user's
        remove_stale_build_locks()  # of compilers that ended with the run: the user's own training would wait for them
    until_ns = _until_ns(run_dir) if is_late else _NEVER_NS
    is_in_place = in_place_before_undone(run_dir)
    loud = loud_folders(run_dir, until_ns)
    remove_saved(run_dir, until_ns, is_late=is_late)
    is_done = put_back(run_dir, until_ns)
    remove_saved(run_dir, until_ns, is_late=is_late)  # what it had saved in a folder of the user's that it then removed
    remove_weights(run_dir, is_late=is_late)
    if is_done:
        tidy_left(run_dir.path.parent)
        tidy(run_dir, until_ns, loud)
    note_after(run_dir, until_ns, is_in_place=is_in_place, is_late=is_late)
    if is_done:
        with contextlib.suppress(OSError):  # a full disk; or a guard, or another worker, was faster
            create_private(run_dir.undone).close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What runs have changed that is not undone.

    Attributes:
        waiting: the folders of those that may go on, or whose files runs that go on may use.
        failed: of those whose files could not be put back.
    """

    waiting: tuple[Path, ...] = ()
    failed: tuple[Path, ...] = ()


def undo_left(results: Path, *, for_training: bool = False) -> Remains:
    """Undoes what runs in a results folder have done that are over, where whoever saw to their end could not.

    Args:
        results: the folder.
        for_training: a training begins now, as for `tidy_left`.

    Returns:
        What is still left.
    """
    waiting, failed = list[Path](), list[Path]()
    for run_dir in [one for path in results.iterdir() for one in _to_undo(path, failed)] if results.is_dir() else ():
        is_tried, is_undone = False, False
        with contextlib.suppress(OSError):
            if run_dir.undone.exists():
                continue
            with _alone_with(run_dir) as is_alone:
                if run_dir.undone.exists() or not _has_told(run_dir):
                    continue
                if is_tried := is_alone and _is_over(run_dir):
                    _undo(run_dir, is_late=True)
            is_undone = run_dir.undone.exists()
        if not is_undone:
            (failed if is_tried else waiting).append(run_dir.path)
    waiting += tidy_left(results, for_training=for_training)
    return Remains(waiting=tuple(waiting), failed=tuple(failed))


def _to_undo(path: Path, unknown: list[Path]) -> list[RunDir]:
    """A run's folder as this machine sees to it, and for the other nodes, if one was lost. Nothing if it is none.

    `unknown`: gets it if nobody can tell.
    """
    try:
        if not (run_dir := RunDir(path)).is_own:
            return []
        seen = from_here(run_dir)
        if not run_dir.lost.exists() or seen.host != as_from_here(run_dir).host:
            return [seen]
        events: list[Moved | Saved] = [*told(run_dir, Moved), *told(run_dir, Saved)]
        hosts = {event.host for event in events}
        return [seen, *(RunDir(path, host) for host in sorted(hosts - {platform.node(), seen.host}))]
    except OSError as error:
        if error.errno in _CANNOT_TELL:
            unknown.append(path)
        return []


@contextlib.contextmanager
def _alone_with(run_dir: RunDir) -> Iterator[bool]:
    """Waits until nobody else undoes a run. Gives False if that lasts: who does it may be frozen.

    Two at once would be one too many: who ends later would mark a run as undone that has been started again.
    """
    with contextlib.ExitStack() as opened:
        is_alone, until = True, time.monotonic() + _PATIENCE_SECONDS
        with contextlib.suppress(OSError):  # there is no folder of a run, or there can be no lock
            mark = os.open(run_dir.mark, os.O_RDWR | os.O_NOFOLLOW)  # to be written: network file systems want that
            opened.callback(os.close, mark)
            while not (is_alone := _is_locked(mark)) and time.monotonic() < until:
                time.sleep(_LOOK_SECONDS)
        yield is_alone


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # there are none
    return True


def _has_told(run_dir: RunDir) -> bool:
    return bool(told_here(run_dir, Moved)) or bool(told_here(run_dir, Saved))


def _is_over(run_dir: RunDir) -> bool:
    """Whether a run has shown no sign of life for a while, and no process of it lives here."""
    since = run_dir.now_ns() - _until_ns(run_dir) - (_ELSEWHERE_NS if run_dir.host is not None else 0)
    is_silent = since > 0 or since < -_DAY_NS  # a date to come is none
    return is_silent and not processes_of(run_dir.path) and not may_be_present(run_dir, is_hidden=False)


def _until_ns(run_dir: RunDir) -> int:
    """Until when a run may have written to files that it told of last, if nobody was there when it ended."""
    return run_dir.last_sign_ns() + _SAVING_NS
