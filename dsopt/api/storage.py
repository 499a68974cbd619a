"""Where studies are stored: the default storage, and how to open one."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dsopt.errors import DsoptError
from dsopt.study.secrets import NOTIFY_VARIABLE as NOTIFY_VARIABLE
from dsopt.study.secrets import STORAGE_FILE_VARIABLE as STORAGE_FILE_VARIABLE
from dsopt.study.secrets import STORAGE_VARIABLE as STORAGE_VARIABLE
from dsopt.study.secrets import TOKEN_FILE_VARIABLE as TOKEN_FILE_VARIABLE

if TYPE_CHECKING:
    from dsopt.store.studies import Store

DEFAULT_STORAGE: Final = "sqlite:///.dsopt/dsopt.db"


def chosen_storage(storage: str | None) -> str:
    """The URL to use: the one given, else that of DSOPT_STORAGE, else the one in the file that DSOPT_STORAGE_FILE
    names, else SQLite in the working directory.

    Raises:
        DsoptError: the file cannot be read, or is empty.
    """
    if storage is not None:
        return storage
    if url := os.environ.get(STORAGE_VARIABLE):
        return url
    if path := os.environ.get(STORAGE_FILE_VARIABLE):
        return secret_in(Path(path), f"{STORAGE_FILE_VARIABLE}={path}")
    return DEFAULT_STORAGE


def secret_in(path: Path, name: str) -> str:
    """What a file holds, without the end of its line. `name` says where a person named the file.

    Raises:
        DsoptError: it cannot be read, or is empty, or is not a file.
    """
    if path.is_fifo() or path.is_char_device():
        raise DsoptError(f"{name}: is a pipe or a device. Expected a file.")
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise DsoptError(f"{name}: cannot be read: {reason}.") from None
    if not text:
        raise DsoptError(f"{name}: the file is empty.")
    return text


def shown_storage(storage: str | None) -> str:
    """The URL to use, without its password.

    Raises:
        DsoptError: it is not the URL of a database that dsopt supports.
    """
    from dsopt.store.url import shown, storage_url

    return shown(storage_url(chosen_storage(storage)))


def open_store(storage: str | None, *, make: bool = False) -> "Store":
    """Opens a storage; with `make`, creates the schema in an empty database.

    Turns off Optuna's messages about each trial, and about dropped connections, unless the program has set Optuna's
    verbosity.

    Raises:
        NoStudiesError: nothing was ever created there.
        DsoptError: the URL is wrong, the database cannot be reached, or another version made it.
    """
    import optuna

    from dsopt.store.studies import Store

    if optuna.logging.get_verbosity() == optuna.logging.INFO:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
    return Store.open(chosen_storage(storage), make=make)


@contextlib.contextmanager
def looked_at(storage: str | None) -> "Iterator[Store]":
    """A storage to look at dsopt's own tables alone, without Optuna; closed in the end. Raises as `open_store`."""
    from dsopt.store.studies import Store

    with contextlib.closing(Store.open(chosen_storage(storage))) as store:
        yield store


@contextlib.contextmanager
def opened(storage: str | None) -> "Iterator[Store]":
    """A storage, closed in the end; raises as `open_store`."""
    store = open_store(storage)
    try:
        yield store
    finally:
        store.close()


@contextlib.contextmanager
def handed_on(storage: str | None, *, make: bool = False) -> "Iterator[Store]":
    """A storage that what is made of it keeps open; closed if nothing is. Raises as `open_store`."""
    store = open_store(storage, make=make)
    try:
        yield store
    except BaseException:
        store.close()
        raise


def database_error(error: BaseException) -> str | None:
    """Which database an exception comes from, its own words, and what to do if that is known; else None."""
    trouble = sys.modules.get("dsopt.store.trouble")  # whose exception it is has imported it
    words = trouble.database_error(error) if trouble else None
    return f"{trouble.database_of(error)}: {words}" if trouble and words else None


def is_away(error: BaseException) -> bool:
    """Whether an exception says that a database cannot be used now, though it may be soon."""
    trouble = sys.modules.get("dsopt.store.trouble")
    return bool(trouble and trouble.is_away(error))
