"""Looks at a database without changing anything: its revision, its clock, whether dsopt may write to it."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import URL

from dsopt.errors import DsoptError
from dsopt.store import clock, engine, revision, trouble
from dsopt.store.tables import studies
from dsopt.store.url import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A database as it is now.

    Attributes:
        shown: its URL, without the password.
        revision: of dsopt's schema; None if it has no tables, so that the first study creates them.
        behind_seconds: how far its clock is behind this machine's; None for SQLite, which has no clock of its own.
    """

    shown: str
    revision: str | None
    behind_seconds: float | None


def examine(url: URL) -> Examined:
    """Looks at a database that exists.

    Raises:
        DsoptError: it cannot be reached, belongs to another version or application, or cannot be written to.
    """
    with _opened(url) as opened:
        try:
            found = revision.state(opened)
            if found.revision is not None:
                revision.check(opened)
                _try_to_write(opened)
            else:
                revision.refuse_foreign(opened)
            return Examined(shown=shown(url), revision=found.revision, behind_seconds=_behind(opened))
        except sa.exc.DBAPIError as error:
            raise DsoptError(f"--storage: {shown(url)}: {trouble.database_error(error)}") from None


@contextlib.contextmanager
def _opened(url: URL) -> Iterator[sa.Engine]:
    # what sets up a connection to SQLite switches the file to WAL, and may create it
    is_file = url.drivername == "sqlite"
    opened = sa.create_engine(url, **engine.engine_options(url)) if is_file else engine.connect(url)
    try:
        yield opened
    finally:
        opened.dispose()


def _try_to_write(opened: sa.Engine) -> None:
    """Changes no row, which takes the right to change them, and a disk and a server that take changes."""
    with opened.connect() as connection, connection.begin() as transaction:
        connection.execute(sa.update(studies).where(sa.false()).values(name=studies.c.name))
        transaction.rollback()


def _behind(opened: sa.Engine) -> float | None:
    if opened.dialect.name == "sqlite":
        return None
    with opened.connect() as connection:
        before = time.time()
        told = float(connection.execute(sa.select(clock.now(connection))).scalar_one())
        return (before + time.time()) / 2 - told
