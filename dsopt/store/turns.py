"""Whose turn it is to plan: workers of one study plan one after another, so that nobody plans what another has begun.

Nothing rests on it: a plan holds only as long as nobody has decided anything since (`transactions.changing`). So who
has waited too long for its turn plans without it.
"""

import contextlib
import zlib
from collections.abc import Iterator
from typing import Final

import filelock
import sqlalchemy as sa

from dsopt.store.engine import lock_file

_WAIT_SECONDS: Final = 2.0  # nobody's results wait longer because another one plans
_LOOK_SECONDS: Final = 0.01


@contextlib.contextmanager
def turn(engine: sa.Engine, study_id: str) -> Iterator[None]:
    """Waits for this worker's turn to plan a study, and holds it.

    A file lock beside an SQLite database; in PostgreSQL, an advisory lock of a transaction that does nothing else. It
    ends with the process, and the server ends it when the process is frozen.
    """
    if engine.dialect.name == "sqlite":
        lock = lock_file(engine, f"turn-{study_id}")
        with contextlib.suppress(filelock.Timeout):
            lock.acquire(timeout=_WAIT_SECONDS, poll_interval=_LOOK_SECONDS)
        try:
            yield
        finally:
            lock.release()
        return
    connection = engine.connect()
    try:
        limit = sa.func.set_config("lock_timeout", f"{_WAIT_SECONDS:.0f}s", True)
        turn_lock = sa.func.pg_advisory_xact_lock(zlib.crc32(f"dsopt:turn:{study_id}".encode()))
        with contextlib.suppress(sa.exc.OperationalError):
            connection.execute(sa.select(limit, sa.cast(turn_lock, sa.Text)))
        yield
    finally:
        with contextlib.suppress(sa.exc.DBAPIError):
            connection.close()
