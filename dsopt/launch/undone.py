"""What a run has done to files outside its own folder is undone, whoever does it and whatever the run came to."""

import contextlib
import time
from typing import Final

from dsopt.launch.leftovers import remove_stale_build_locks
from dsopt.launch.put_back import put_back
from dsopt.launch.saved import remove_saved
from dsopt.protocol.private import create_private
from dsopt.protocol.run_dir import RunDir

_SAVING_NS: Final = 60_000_000_000  # how long a rank may have written to one file since it last told anything


def undo(run_dir: RunDir, *, is_late: bool = False) -> None:
    """Removes what the run has saved, and puts back what it moved, once. Its processes on this machine are gone.

    What cannot be put back, as on a full disk, is tried again by whoever comes next, and `dsopt doctor` names it.

    `is_late`: nobody was there when they ended, so that others may have written to its files since.
    """
    if run_dir.undone.exists() or not run_dir.mark.exists():
        return
    remove_stale_build_locks()  # of compilers that ended with the run: the user's own training would wait for them
    until_ns = run_dir.last_sign_ns() + _SAVING_NS if is_late else time.time_ns() + _SAVING_NS
    remove_saved(run_dir, until_ns, is_late=is_late)
    is_done = put_back(run_dir, until_ns)
    remove_saved(run_dir, until_ns, is_late=is_late)  # what it had saved in a folder of the user's that it then removed
    if is_done:
        with contextlib.suppress(OSError):  # a full disk; or a guard, or another worker, was faster
            create_private(run_dir.undone).close()
