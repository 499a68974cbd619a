"""Whether processes of a run live, for those who cannot see them: a lock on its log, which ends with the last of them.

Processes inherit their output, and the lock with it, from whoever starts them. Two containers do not see each other's
processes, but share the kernel that keeps such locks.
"""

import contextlib
import fcntl

from dsopt.protocol.given import open_given
from dsopt.protocol.run_dir import RunDir


def be_present(log: int) -> None:
    """Locks a log that is open for writing, for as long as a process has it open."""
    with contextlib.suppress(OSError):  # some network file systems have no locks
        fcntl.flock(log, fcntl.LOCK_SH)


def may_be_present(run_dir: RunDir, *, is_hidden: bool) -> bool:
    """Whether processes of a run may be alive: they are, or, if they are hidden, its folder cannot be looked at."""
    try:
        with open_given(run_dir.stdout) as log:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return is_hidden and not run_dir.path.is_dir()  # it has started nothing yet
    except OSError:
        return is_hidden
    return False
