"""A copy of a database in one file, and back. SQLite copies itself; PostgreSQL's own programs do it there."""

import contextlib
import os
import secrets
import shlex
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL

from dsopt.errors import DsoptError
from dsopt.launch.processes import host_identity, is_gone, processes_of
from dsopt.store.clock import now
from dsopt.store.heartbeat import LEASE_SECONDS
from dsopt.store.optuna_rows import names_in_optuna
from dsopt.store.queries import Row, other_workers
from dsopt.store.revision import check, refuse_newer, state
from dsopt.store.tables import leases, studies
from dsopt.store.transactions import writing
from dsopt.store.url import for_programs, shown
from dsopt.store.workers import bury_all
from dsopt.study.part import PARTS

_WAIT_SECONDS = 60.0


def copy_to_file(database: Path, file: Path) -> None:
    """Copies an SQLite database to a new file, as it is at one moment; workers go on meanwhile.

    The copy needs no other file beside it, and only its owner can read it: commands may hold secrets.

    Raises:
        DsoptError: the file exists, or cannot be written.
    """
    if file.exists():
        raise DsoptError(f"{file}: exists. Name a new file: a backup replaces nothing.")
    part = file.with_name(f".{file.name}.{uuid.uuid4().hex}.part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with _opened(database, "ro") as source, _opened(part, "rw") as target:
            source.backup(target)  # all pages in one go: in steps, it would begin anew with each commit of a worker
            target.execute("PRAGMA journal_mode=DELETE")
        _check(part, "the copy")
        with part.open("rb") as written:
            os.fsync(written.fileno())
        os.link(part, file)  # unlike a rename, this replaces nothing that came meanwhile
    except OSError as error:
        raise DsoptError(f"{file}: cannot be written: {error.strerror}.") from None
    except sqlite3.Error as error:
        raise DsoptError(f"{file}: cannot be written: {error}.") from None
    finally:
        part.unlink(missing_ok=True)


def copy_from_file(file: Path, database: Path) -> None:
    """Replaces the content of an SQLite database by that of a backup, in one transaction.

    Not by a rename: who has the old file open would go on writing to it.
    """
    try:
        with _opened(file, "ro") as source, _opened(database, "rw") as target:
            source.backup(target)
    except sqlite3.Error as error:
        raise DsoptError(f"{database}: cannot be written, and is as it was: {error}.") from None


def forget_workers(engine: sa.Engine) -> None:
    """Ends what the workers of a backup had, in the restored database alone.

    They may go on in the database that the backup was made of: nobody here may end their runs. In a backup of an older
    revision, the upgrade takes its workers for dead.
    """
    with engine.connect() as connection, connection.begin():
        # those who look at it forget what they know (`clock.incarnation`)
        connection.exec_driver_sql(f"PRAGMA user_version = {secrets.randbelow(2**31 - 1) + 1}")
    with writing(engine) as connection:
        connection.execute(sa.delete(leases))
    if state(engine).is_current:
        bury_all(engine)


def names_in_backup(file: Path) -> list[str]:
    """The names of the studies in a backup.

    Raises:
        DsoptError: it is no sound backup, or of a newer dsopt.
    """
    if not file.is_file():
        raise DsoptError(f"{file}: {'is not a file' if file.exists() else 'no such file'}.")
    try:
        _check(file, "the file")
        # a path in a URL would be decoded twice
        engine = sa.create_engine("sqlite://", creator=lambda: _connect(file, "ro"), poolclass=sa.NullPool)
        try:
            refuse_newer(engine)
            if state(engine).revision is None:
                raise DsoptError(f"{file}: has no dsopt tables. Expected a file from: dsopt db backup")
            with engine.connect() as connection:
                return study_names(connection)
        finally:
            engine.dispose()
    except (sqlite3.Error, sa.exc.DBAPIError) as error:
        reason = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        raise DsoptError(f"{file}: cannot be read as a backup: {reason}.") from None


def study_names(connection: sa.Connection) -> list[str]:
    """The names of the studies, oldest first."""
    return list(connection.execute(sa.select(studies.c.name).order_by(studies.c.created_at)).scalars())


def living_workers(connection: sa.Connection) -> list[Row]:
    """The workers that may still write: their process lives on this machine, or they beat within the last minute.

    One that beat in the future died before somebody set the database's clock back: others have beaten since.
    """
    here, today = host_identity(), connection.execute(sa.select(now(connection))).scalar_one()
    return [
        row
        for row in other_workers(connection, None)
        if (
            not is_gone(row["pid"], row["process_started"])
            if row["host"] == here
            else abs(today - row["heartbeat_at"]) <= LEASE_SECONDS
        )
    ]


def refuse_to_lose(engine: sa.Engine, *, replace: bool) -> None:
    """Refuses to restore where that would take something from somebody.

    Raises:
        DsoptError: the database is another application's or version's, workers live there, or it has studies and
            `replace` is not set.
    """
    where = f"--storage: {shown(engine.url)}"
    tables = sa.inspect(engine).get_table_names()
    if state(engine).revision is None:
        if tables:
            raise DsoptError(
                f"{where} is not dsopt's: it has tables such as '{min(tables)}'. Expected an empty database."
            )
        return
    check(engine)
    with engine.connect() as connection:
        living, names = living_workers(connection), study_names(connection)
        parts = {f"{name}/{part}" for name in names for part in PARTS}
        names += [name for name in names_in_optuna(connection) if name not in parts]  # the user's own
        run_dirs = connection.execute(sa.select(leases.c.run_dir).distinct()).scalars().all()
    if living:
        listed = ", ".join(f"{row['node']} (process {row['pid']})" for row in living)
        raise DsoptError(f"{where}: workers are at work: {listed}. Stop them first; see: dsopt workers")
    if going := [path for path in run_dirs if processes_of(Path(path))]:
        raise DsoptError(
            f"{where}: a run without a worker goes on: {going[0]}. dsopt worker ends it, or end its processes by hand."
        )
    if names and not replace:
        raise DsoptError(
            f"{where} has studies, which would be lost: {', '.join(names)}. To replace them, add --replace; to keep "
            "them, first run: dsopt db backup FILE"
        )


def pg_dump_command(url: URL, file: Path) -> str:
    """The command that backs up a PostgreSQL database."""
    return shlex.join(["pg_dump", "--format=custom", "--no-owner", f"--file={file}", for_programs(url)])


def pg_restore_command(url: URL, file: Path) -> str:
    """The command that restores one, all or nothing. Grants are those of the target, not of the backup."""
    options = ["--clean", "--if-exists", "--single-transaction", "--no-owner", "--no-acl"]
    return shlex.join(["pg_restore", *options, f"--dbname={for_programs(url)}", str(file)])


def _check(file: Path, name: str) -> None:
    """Reads all of a database.

    Raises:
        DsoptError: it is damaged.
    """
    with _opened(file, "ro") as connection:
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise DsoptError(f"{file}: {name} is damaged: {found}.")


@contextlib.contextmanager
def _opened(file: Path, mode: str) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(_connect(file, mode)) as connection:
        yield connection


def _connect(file: Path, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(bytes(file.absolute()))}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)
