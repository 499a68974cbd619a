"""The file of an SQLite database: whether it is still the one that a connection has open."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

_FILE: Final = "dsopt_file"  # in what the pool notes of a connection


def follow(engine: sa.Engine) -> None:
    """Lets no connection write into a file that somebody has removed or replaced: what it holds would be lost.

    A missing file is an error that ends when it is back. Without this, SQLite would go on in the removed file, or make
    a new one without tables. Where another file is in its place, the pool connects to that.
    """
    path = str(engine.url.database)

    @sa.event.listens_for(engine, "do_connect")
    def _(_dialect: object, record: Any, *_: object) -> None:  # noqa: ANN401 - of the pool
        record.info[_FILE] = _identity(path)

    @sa.event.listens_for(engine, "checkout")
    def _(_connection: object, record: Any, _proxy: object) -> None:  # noqa: ANN401 - of the pool
        if is_replaced(path, record.info):
            raise sa.exc.DisconnectionError


def file_of(engine: sa.Engine) -> tuple[int, int] | None:
    """What tells the file of an SQLite database from every other; None of another database, or if it is not there.

    Another file in its place may be an older copy, without what was written since.
    """
    with contextlib.suppress(sqlite3.OperationalError):
        return _identity(str(engine.url.database)) if engine.dialect.name == "sqlite" else None
    return None


def opened_file(connection: sa.Connection) -> tuple[int, int]:
    """The file that a connection to an SQLite database has open."""
    found: tuple[int, int] = connection.info[_FILE]
    return found


def is_replaced(path: str, info: dict[Any, Any]) -> bool:
    """Whether the file at a path is not the one that a connection has open, by what the pool notes of that."""
    try:
        return bool(_identity(path) != info[_FILE])
    except sqlite3.OperationalError:
        return True


def _identity(path: str) -> tuple[int, int]:
    """What tells a file from every other on this machine.

    Raises:
        sqlite3.OperationalError: it is not there; the words are SQLite's own.
    """
    try:
        found = Path(path).stat()
    except OSError:
        raise sqlite3.OperationalError("unable to open database file") from None
    return found.st_dev, found.st_ino
