"""Whose turn it is to plan: workers of one study plan one after another, so that nobody plans what another has begun.

Nothing rests on it: a plan holds only as long as nobody has decided anything since (`transactions.changing`). So who
has waited too long for its turn plans without it, and does not wait again for whoever has it: that may be frozen.
"""

import contextlib
import zlib
from collections.abc import Iterator
from typing import Final

import filelock
import sqlalchemy as sa

from dsopt.store.engine import lock_file

_WAIT_SECONDS: Final = 2.0  # nobody's results wait longer because another one plans
_AGAIN_SECONDS: Final = 0.01
_LOOK_SECONDS: Final = 0.01


class Turns:
    """The turns of one worker at planning a study.

    They are a file lock beside an SQLite database; in PostgreSQL, an advisory lock of a transaction that does nothing
    else. Either ends with the process, and the server ends its own when the process is frozen.
    """

    def __init__(self, engine: sa.Engine, study_id: str) -> None:
        self._engine = engine
        self._name = f"turn-{study_id}"
        self._wait_seconds = _WAIT_SECONDS

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        """Waits for this worker's turn, and holds it."""
        with self._file_lock() if self._engine.dialect.name == "sqlite" else self._server_lock() as is_mine:
            self._wait_seconds = _WAIT_SECONDS if is_mine else _AGAIN_SECONDS
            yield

    @contextlib.contextmanager
    def _file_lock(self) -> Iterator[bool]:
        lock = lock_file(self._engine, self._name)
        with contextlib.suppress(filelock.Timeout):
            lock.acquire(timeout=self._wait_seconds, poll_interval=_LOOK_SECONDS)
        try:
            yield lock.is_locked
        finally:
            lock.release()

    @contextlib.contextmanager
    def _server_lock(self) -> Iterator[bool]:
        connection = self._engine.connect()
        try:
            limit = sa.func.set_config("lock_timeout", f"{1000 * self._wait_seconds:.0f}ms", True)
            lock = sa.func.pg_advisory_xact_lock(zlib.crc32(f"dsopt:{self._name}".encode()))
            is_mine = False
            with contextlib.suppress(sa.exc.OperationalError):
                connection.execute(sa.select(limit, sa.cast(lock, sa.Text)))
                is_mine = True
            yield is_mine
        finally:
            with contextlib.suppress(sa.exc.DBAPIError):
                connection.close()
