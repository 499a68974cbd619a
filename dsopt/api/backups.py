"""Backs up a storage to a file, and restores it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsopt.api.storage import chosen_storage
from dsopt.errors import DsoptError
from dsopt.store import backup, engine, revision
from dsopt.store.url import exists, shown, storage_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A backup that was made or restored.

    Attributes:
        file: the backup.
        storage: URL of the database, without the password.
        studies: names of the studies in it.
        size_bytes: of the file.
    """

    file: Path
    storage: str
    studies: Sequence[str]
    size_bytes: int


def back_up(file: Path, *, storage: str | None = None) -> Backup:
    """Copies an SQLite storage to a new file, as it is at one moment, while workers go on.

    Raises:
        DsoptError: the file exists or cannot be written; there is no storage; or it is in PostgreSQL, and the message
            has the command to run.
    """
    url = storage_url(chosen_storage(storage))
    where = shown(url)
    if not exists(url):
        raise DsoptError(f"--storage: {where}: no such file.")
    connected = engine.connect(url)
    try:
        if revision.state(connected).revision is None:
            raise DsoptError(f"--storage: {where} has no dsopt tables, so there is nothing to back up.")
    finally:
        connected.dispose()
    if url.drivername != "sqlite":
        raise DsoptError(
            f"--storage: {where}: nothing was backed up. PostgreSQL's own program does it, while workers go on:\n"
            f"  {backup.pg_dump_command(url, file)}"
        )
    backup.copy_to_file(Path(str(url.database)), file)
    return Backup(file=file, storage=where, studies=backup.names_in_backup(file), size_bytes=file.stat().st_size)


def restore(file: Path, *, replace: bool = False, storage: str | None = None) -> Backup:
    """Replaces all that an SQLite storage holds by a backup.

    Args:
        file: the backup.
        replace: whether studies in the storage may be lost.
        storage: URL of the database; by default as for `load_study`.

    Raises:
        DsoptError: workers live there; an older dsopt made it; it has studies and `replace` is not set; the file is no
            sound backup; or it is in PostgreSQL, and the message has the command to run.
    """
    url = storage_url(chosen_storage(storage))
    where = shown(url)
    is_sqlite = url.drivername == "sqlite"
    names = backup.names_in_backup(file) if is_sqlite else []
    if is_sqlite and file.exists() and Path(str(url.database)).exists() and file.samefile(str(url.database)):
        raise DsoptError(f"{file}: is the storage itself. Expected a file from: dsopt db backup")
    connected = engine.connect(url)
    try:
        with engine.exclusive(connected, "schema"):
            backup.refuse_to_lose(connected, replace=replace)
            if not is_sqlite:
                raise DsoptError(
                    f"--storage: {where}: nothing was restored. PostgreSQL's own program does it, all or nothing:\n"
                    f"  {backup.pg_restore_command(url, file)}"
                )
            connected.dispose()  # a connection that reads would keep the old content
            backup.copy_from_file(file, Path(str(url.database)))
            backup.forget_workers(connected)
    finally:
        connected.dispose()
    return Backup(file=file, storage=where, studies=names, size_bytes=file.stat().st_size)
