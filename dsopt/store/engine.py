"""Connections: sets up SQLite and PostgreSQL for many workers, locks between processes."""

import contextlib
import math
import os
import socket
import sqlite3
import time
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL

from dsopt.errors import DsoptError
from dsopt.protocol.private import create_private, make_private
from dsopt.store import trouble
from dsopt.store.database_file import follow
from dsopt.store.url import shown

_SQLITE_BUSY_SECONDS = 15
_REST_SECONDS = 30.0  # longer than an idle worker rests: each ping is a transaction
_LOCK_SECONDS = 60.0  # how long one waits for another that holds a lock, which lasts seconds
_POSTGRES = {
    "client_encoding": "utf8",
    "connect_timeout": 10,
    # a server or network that says nothing more is noticed within some 15 seconds
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
# who is frozen in a transaction loses it, and its locks; nobody waits for a lock, or for an answer, for good
_open: "weakref.WeakSet[Any]" = weakref.WeakSet()
_POSTGRES_SESSION = (
    "SET lock_timeout = '15s'; SET statement_timeout = '60s'; SET idle_in_transaction_session_timeout = '15s'"
)


def engine_options(url: URL) -> dict[str, Any]:
    """Options for `create_engine`, also for Optuna's own engine on the same database."""
    return {"connect_args": {"timeout": _SQLITE_BUSY_SECONDS} if url.drivername == "sqlite" else dict(_POSTGRES)}


def connect(url: URL) -> sa.Engine:
    """An engine on the storage, after a first connection that shows that it can be reached.

    Raises:
        DsoptError: it cannot; the message contains no password.
    """
    if url.drivername == "sqlite":
        assert url.database is not None
        try:
            _make_file(Path(url.database))
        except OSError as error:
            raise DsoptError(f"--storage: {shown(url)}: cannot create its folder: {error.strerror}.") from None
    try:
        engine = sa.create_engine(url, **engine_options(url))
    except ModuleNotFoundError:
        raise DsoptError(
            "--storage: PostgreSQL needs psycopg. Install it with: pip install 'dsopt[postgres]'"
        ) from None
    prepare(engine)
    try:
        with engine.connect() as connection:
            encoding = _encoding_of(connection)
    except sa.exc.DBAPIError as error:
        engine.dispose()
        reason = (str(error.orig).strip().splitlines() or ["no reason given"])[-1].strip()
        secrets = [url.password, *(value for key, value in url.query.items() if "pass" in key)]
        if any(str(secret) in reason for secret in secrets if secret and len(str(secret)) > 3):
            reason = "the server's message contains the password, so it is not shown"
        reason = reason[:1].upper() + reason[1:] + ("" if reason.endswith((".", "?", "!")) else ".")
        if url.drivername == "sqlite" and "I/O error" in reason:  # it makes a file beside the database
            reason += " Its disk may be full or broken."
        server = "" if url.drivername == "sqlite" else " and that the server is running"
        raise DsoptError(
            f"--storage: {shown(url)} cannot be reached. {reason} Check the URL (--storage or DSOPT_STORAGE){server}."
        ) from None
    if encoding != "UTF8":
        engine.dispose()
        raise DsoptError(
            f"--storage: {shown(url)} stores text as {encoding}, which cannot hold every message of a script. "
            "Expected UTF8. Make a database with: createdb --encoding=UTF8 --template=template0 NAME"
        )
    return engine


def _encoding_of(connection: sa.Connection) -> str:
    """How the database stores text."""
    if connection.dialect.name == "sqlite":
        return "UTF8"
    return str(connection.exec_driver_sql("SHOW server_encoding").scalar_one())


def _make_file(path: Path) -> None:
    """Creates an empty database that only its owner may read; SQLite gives the files beside it the same mode."""
    make_private(path.parent)
    with contextlib.suppress(FileExistsError):
        create_private(path).close()


def prepare(engine: sa.Engine) -> None:
    """Sets up each connection: in SQLite, WAL, foreign keys, a wait instead of an error; in PostgreSQL, time limits.

    Errors get to know which database they come from. A connection that only reads is given up: it may stay so, as on
    the server that was the first before a failover, when a new one could write.
    """

    @sa.event.listens_for(engine, "handle_error")
    def _(context: sa.engine.ExceptionContext) -> None:
        if getattr(context.original_exception, "sqlstate", None) == trouble.ONLY_READS:
            context.is_disconnect = True
        if context.sqlalchemy_exception is not None:
            trouble.note_database(context.sqlalchemy_exception, shown(engine.url))

    if engine.dialect.name != "sqlite":

        @sa.event.listens_for(engine, "connect")
        def _(connection: Any, _record: object) -> None:  # noqa: ANN401 - of the driver
            with connection.cursor() as cursor:
                cursor.execute(_POSTGRES_SESSION)
            connection.commit()
            _open.add(connection)

        @sa.event.listens_for(engine, "checkin")
        def _(_connection: object, record: Any) -> None:  # noqa: ANN401 - of the pool
            record.info["rests_since"] = time.monotonic()

        @sa.event.listens_for(engine, "checkout")
        def _(connection: Any, record: Any, _proxy: object) -> None:  # noqa: ANN401 - of the driver and the pool
            """Asks whether a connection that has rested is still there (SQLAlchemy's `pool_pre_ping`: at every use)."""
            if time.monotonic() - record.info.get("rests_since", math.inf) > _REST_SECONDS:
                try:
                    engine.dialect.do_ping(connection)
                except engine.dialect.loaded_dbapi.Error:
                    raise sa.exc.DisconnectionError from None

        return

    follow(engine)

    @sa.event.listens_for(engine, "connect")
    def _(connection: sqlite3.Connection, _record: object) -> None:
        cursor = connection.cursor()
        _write_ahead(cursor)
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()


def sever_connections() -> None:
    """Cuts this process's connections to servers, so that whoever waits for an answer of one gets an error instead.

    The system notices by itself when a server or the network is gone, but not when something between them is frozen.
    """
    for connection in list(_open):
        with contextlib.suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)  # raises if it is closed already


def _write_ahead(cursor: sqlite3.Cursor) -> None:
    """Switches the file to WAL. SQLite does not wait by itself here for another process that switches it too."""
    deadline = time.monotonic() + _SQLITE_BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


@contextlib.contextmanager
def exclusive(engine: sa.Engine, subject: str) -> Iterator[None]:
    """Holds a lock named `subject` that no other process on the same database holds; it ends with the process.

    A file lock beside an SQLite database, which whoever may write to it may lock; an advisory lock in PostgreSQL.
    Workers decide without it: it is for what people do.

    Raises:
        DsoptError: another process holds it for a minute.
    """
    if engine.dialect.name == "sqlite":
        import filelock  # who only looks needs no lock

        with engine.connect():
            pass  # the database is there
        path = f"{engine.url.database}.{subject.partition('-')[0]}.lock"  # not one for each study that ever was
        lock = filelock.FileLock(path, mode=Path(str(engine.url.database)).stat().st_mode & 0o666 | 0o600)
        try:
            lock.acquire(timeout=_LOCK_SECONDS)
        except filelock.Timeout:
            raise _held(engine, subject) from None
        try:
            yield
        finally:
            lock.release()
        return
    key = zlib.crc32(f"dsopt:{subject}".encode())
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text(f"SET lock_timeout = '{_LOCK_SECONDS:.0f}s'"))
        connection.execute(sa.text("SET statement_timeout = 0"))
        try:
            connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": key})
        except sa.exc.OperationalError as error:
            connection.invalidate()  # its session keeps what was set
            if type(error.orig).__name__ != "LockNotAvailable":
                raise
            raise _held(engine, subject) from None
        try:
            yield
        finally:
            try:
                connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": key})
                connection.execute(sa.text(_POSTGRES_SESSION))
            except sa.exc.DBAPIError:
                connection.invalidate()  # which frees the lock, too


def _held(engine: sa.Engine, subject: str) -> DsoptError:
    return DsoptError(
        f"--storage: {shown(engine.url)}: another dsopt has held the lock '{subject}' for {_LOCK_SECONDS:.0f} seconds. "
        "If it does not go on, end it, then try again."
    )
