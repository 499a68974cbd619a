"""Ends a worker that somebody stopped (SIGSTOP, Ctrl-Z) while it held an SQLite database's lock: nobody else can write.

PostgreSQL ends such transactions itself. SQLite does not: its locks belong to processes, and end with them alone.
"""

import os
import signal
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from dsopt.launch.processes import host_identity, is_stopped, start_ticks
from dsopt.store import queries
from dsopt.store.heartbeat import LEASE_SECONDS

_WRITE_LOCK: Final = 120  # the byte of the file `-shm` that a writer locks (https://sqlite.org/walformat.html)


def end_frozen_holder(engine: sa.Engine) -> str | None:
    """Kills whoever holds the lock, if it is a worker of this database and machine, is stopped, and its lease is over.

    Returns what it did, in words; None: nothing.
    """
    if engine.dialect.name != "sqlite":
        return None
    holder = _holder(Path(f"{engine.url.database}-shm"))
    if holder is None or not is_stopped(holder):
        return None
    try:
        process = os.pidfd_open(holder)  # from now on the number means no other process
    except OSError:
        return None
    try:
        if not _is_silent_worker(engine, holder) or not is_stopped(holder):
            return None
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except (ProcessLookupError, sa.exc.DBAPIError):
        return None
    finally:
        os.close(process)
    return f"process {holder}, another worker, was stopped while it held the database's lock, so dsopt has ended it"


def _holder(shared: Path) -> int | None:
    """The process that holds the write lock of a database, by the system's list; None: nobody that is seen from here.

    Asking for the lock itself would not do: whoever closes the file loses the locks that SQLite has on it.
    """
    try:
        status = shared.stat()
        listed = Path("/proc/locks").read_text("ascii").splitlines()
    except OSError:
        return None
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in listed:
        _, _, *words = line.split()  # 1: POSIX ADVISORY WRITE 1234 fe:00:5678 120 120
        if words[:2] == ["ADVISORY", "WRITE"] and words[3] == device:
            first, last = words[4], words[5]
            if int(first) <= _WRITE_LOCK and (last == "EOF" or int(last) >= _WRITE_LOCK):
                return int(words[2])
    return None


def _is_silent_worker(engine: sa.Engine, pid: int) -> bool:
    with engine.connect() as connection:
        rows = queries.other_workers(connection, None)
    return any(
        (row["host"], row["pid"], row["process_started"]) == (host_identity(), pid, start_ticks(pid))
        and row["silent_seconds"] > LEASE_SECONDS
        for row in rows
    )
