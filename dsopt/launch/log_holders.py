"""Who holds the lock of a run's log, of the processes that are seen from here."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from dsopt.launch.processes import is_stopped


def only_stopped_starters(log: Path) -> bool:
    """Whether nobody holds the lock of a log but who took it, and somebody has stopped that one.

    Whoever starts a run takes the lock and hands it on, so a worker that is stopped at that moment keeps it. Once the
    run's processes are gone, no other will come before the worker goes on.
    """
    held = _holders(log)
    # looked at twice: a worker may have started another process before it was stopped
    return bool(held) and all(pid == taken_by and is_stopped(pid) for pid, taken_by in held) and _holders(log) == held


def _holders(log: Path) -> set[tuple[int, int]]:
    """The processes that hold the lock of a file, each with the process that took it."""
    path = Path(os.path.realpath(log))
    return {(pid, taken_by) for pid in psutil.pids() for taken_by in _who_took(path, Path(f"/proc/{pid}"))}


def _who_took(path: Path, process: Path) -> Iterator[int]:
    """Who took the locks on a file that a process holds with what it has open, whether by itself or inherited."""
    with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
        for opened in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has closed this one meanwhile
                if opened.readlink() == path:
                    for line in (process / "fdinfo" / opened.name).read_text("ascii").splitlines():
                        if line.startswith("lock:"):  # lock: 1: FLOCK ADVISORY READ 1234 fe:00:5678 0 EOF
                            yield int(line.split()[5])
