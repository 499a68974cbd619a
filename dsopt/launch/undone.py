"""What a run has done to files outside its own folder is undone, whoever does it and whatever the run came to."""

import contextlib
import time
from pathlib import Path
from typing import Final

from dsopt.launch.leftovers import remove_stale_build_locks
from dsopt.launch.outside import in_place_before_undone, note_after
from dsopt.launch.processes import processes_of
from dsopt.launch.put_back import put_back
from dsopt.launch.saved import remove_saved, remove_weights
from dsopt.launch.tidied import loud_folders, tidy, tidy_left
from dsopt.launch.told import told_here
from dsopt.protocol.events import Moved
from dsopt.protocol.presence import may_be_present
from dsopt.protocol.private import create_private
from dsopt.protocol.run_dir import RunDir

_SAVING_NS: Final = 60_000_000_000  # how long a rank may have written to one file since it last told anything
_NEVER_NS: Final = 2**63  # an archive may hold any date


def undo(run_dir: RunDir, *, is_late: bool = False) -> None:
    """Removes what the run has saved, and puts back what it moved, once. Its processes on this machine are gone.

    What cannot be put back, as on a full disk, is tried again when a worker begins (`undo_left`), and `dsopt doctor`
    names it.

    `is_late`: nobody was there when they ended, so that others may have written to its files since.
    """
    if run_dir.undone.exists() or not run_dir.mark.exists():
        return
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


def undo_left(results: Path, *, is_last: bool = False) -> bool:
    """Undoes what runs in a results folder have done that are over, where whoever saw to their end could not.

    Args:
        results: the folder.
        is_last: a training begins now, as for `tidy_left`.

    Returns:
        Whether something is not undone, since a run may go on or its files cannot come back yet.
    """
    is_left = False
    for path in results.iterdir() if results.is_dir() else ():
        run_dir = RunDir(path)
        with contextlib.suppress(OSError):
            if run_dir.undone.exists() or not told_here(run_dir, Moved):
                continue
            is_silent = _until_ns(run_dir) < time.time_ns()
            if is_silent and not processes_of(path) and not may_be_present(run_dir, is_hidden=False):
                undo(run_dir, is_late=True)
            is_left = is_left or not run_dir.undone.exists()
    return tidy_left(results, is_last=is_last) or is_left


def _until_ns(run_dir: RunDir) -> int:
    """Until when a run may have written to files that it told of last, if nobody was there when it ended."""
    return run_dir.last_sign_ns() + _SAVING_NS
