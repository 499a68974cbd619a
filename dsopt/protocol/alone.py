"""Keeps those apart who change the user's files at once on one machine: ranks of all its runs, and who undoes them."""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from typing import Final

from dsopt.protocol.machine_folder import machine_folder
from dsopt.protocol.private import make_private

_LOCK: Final = "files.lock"
_LOOK_SECONDS: Final = 0.002
_PAUSE_SECONDS: Final = 60.0  # after which a lock that was not to be had is waited for again
_held = threading.local()
_locks: set[int] = set()  # that threads of this process have or wait for
_open: Final = os.open  # as it is before a rank wraps it


@contextlib.contextmanager
def alone(seconds: float) -> Iterator[None]:
    """Waits until no other process or thread of this user has the lock, for so long at most: it may be frozen.

    Where there can be no lock, or it was waited for in vain within a minute, it goes on without. A thread that has it
    already gets it, as in the handler of a signal.
    """
    if getattr(_held, "is_mine", False):
        yield
        return
    lock = None
    try:
        lock = _opened() if time.monotonic() > getattr(_held, "not_before", 0.0) else None
        if lock is not None and not _has(lock, time.monotonic() + seconds):
            _held.not_before = time.monotonic() + _PAUSE_SECONDS
        _held.is_mine = True
        yield
    finally:
        _held.is_mine = False
        if lock is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)  # also where a process that was forked meanwhile has it, too
            _locks.discard(lock)  # before another thread has its number
            os.close(lock)


def _opened() -> int | None:
    try:
        make_private(machine_folder())
        lock = _open(machine_folder() / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    _locks.add(lock)
    return lock


def _forget() -> None:
    """A process that is forked meanwhile has none of them: it may outlive its parent."""
    for lock in _locks:
        with contextlib.suppress(OSError):
            os.close(lock)
    _locks.clear()
    _held.is_mine = False


os.register_at_fork(after_in_child=_forget)


def _has(lock: int, deadline: float) -> bool:
    """Waits for a lock; False if it has waited in vain."""
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        except OSError:
            return True  # there are none
        else:
            return True
