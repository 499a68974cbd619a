"""Whether a file is in use, by whatever process of this machine."""

import contextlib
import errno
import fcntl
import os
import signal
from pathlib import Path

import psutil


def is_open(path: Path) -> bool:
    """Whether any process of this machine has a file open or mapped; True also if that cannot be known.

    Containers do not see the processes of one another, but the kernel does: it gives nobody a write lease on a file
    that somebody else has open (`man 2 fcntl`). On a file system without leases, only the processes that are seen
    count. On a network file system, another machine may have it open.
    """
    try:
        with open(path, "rb", buffering=0, opener=_without_waiting) as file:
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # whoever opens it meanwhile does not end this process
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno != errno.EINVAL or is_seen_open(path)
    return False


def is_seen_open(path: Path) -> bool:
    """Whether a process has a file open whose files this one may see: of this user, and of this container."""
    wanted = path.resolve()
    for process in psutil.process_iter():
        # not psutil's open_files(): it leaves out files opened in the way that torch opens its locks
        with contextlib.suppress(OSError):  # it is gone, or another user's
            for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):  # closed meanwhile; the others may be open still
                    if descriptor.readlink() == wanted:
                        return True
    return False


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
