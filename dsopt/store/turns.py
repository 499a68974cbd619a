"""Whose turn it is to plan: workers of one study plan one after another, so that nobody plans what another has begun.

Nothing rests on it: a plan holds only as long as nobody has decided anything since (`transactions.changing`). So who
keeps its turn for long, such as a process that is frozen, loses it, or the others go on without it.
"""

import contextlib
import fcntl
import os
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from dsopt.protocol.private import FILE_MODE

_KEPT_SECONDS: Final = 2.0  # a plan takes a tenth of a second
_QUEUE_SECONDS: Final = 45.0  # less than the server allows a statement
_LOOK_SECONDS: Final = 0.01
_LOCK_NOT_AVAILABLE: Final = "55P03"  # of PostgreSQL's errors


class Turns:
    """The turns of one worker at planning a study."""

    def __init__(self, engine: sa.Engine, study_id: str) -> None:
        self._lock = _FileLock(engine) if engine.dialect.name == "sqlite" else _ServerLock(engine, f"turn-{study_id}")

    def take(self) -> contextlib.AbstractContextManager[None]:
        """Waits for this worker's turn, and holds it."""
        return self._lock.hold()


class _FileLock:
    """The lock of a file beside an SQLite database, for all its studies; its holder writes a name for this time."""

    def __init__(self, engine: sa.Engine) -> None:
        assert engine.url.database is not None
        self._database = Path(engine.url.database)
        self._path = Path(f"{self._database}.turn.lock")
        self._kept: bytes | None = None  # the time that somebody kept it for too long

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Waits as long as others have it one after another; not for one that keeps it."""
        with contextlib.ExitStack() as opened:
            with contextlib.suppress(OSError):  # such as a full disk
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
                opened.callback(os.close, descriptor)
                with contextlib.suppress(PermissionError):  # another user's
                    os.fchmod(descriptor, self._database.stat().st_mode & 0o666 | FILE_MODE)
                if self._wait_for(descriptor):
                    os.pwrite(descriptor, uuid.uuid4().bytes, 0)
            yield

    def _wait_for(self, descriptor: int) -> bool:
        """Returns whether this process has it now. False: somebody keeps it."""
        holder, since = b"", time.monotonic()
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            now = os.pread(descriptor, 16, 0)
            if now != holder:
                holder, since = now, time.monotonic()
            if holder == self._kept or time.monotonic() - since > _KEPT_SECONDS:
                self._kept = holder
                return False
            time.sleep(_LOOK_SECONDS)


class _ServerLock:
    """An advisory lock in PostgreSQL, of a transaction that does nothing else; the server ends one that lasts long.

    Any role that may connect could keep it otherwise: whoever has waited in vain waits no more until it was free once.
    """

    def __init__(self, engine: sa.Engine, name: str) -> None:
        limits = {"idle_in_transaction_session_timeout": _KEPT_SECONDS, "lock_timeout": _QUEUE_SECONDS}
        set_limits = [sa.func.set_config(name, f"{1000 * limit:.0f}ms", True) for name, limit in limits.items()]
        key = zlib.crc32(f"dsopt:{name}".encode())
        self._engine = engine
        self._wait = sa.select(*set_limits, sa.cast(sa.func.pg_advisory_xact_lock(key), sa.Text))
        self._try = sa.select(set_limits[0], sa.func.pg_try_advisory_xact_lock(key))
        self._is_kept = False

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Waits until the others have had it."""
        with self._engine.connect() as connection:
            try:
                if self._is_kept:
                    self._is_kept = not connection.execute(self._try).one()[1]
                else:
                    connection.execute(self._wait)
            except sa.exc.OperationalError as error:
                self._is_kept = getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE
            try:
                yield
            finally:
                with contextlib.suppress(sa.exc.DBAPIError):
                    connection.rollback()  # here, since the pool would print an error
