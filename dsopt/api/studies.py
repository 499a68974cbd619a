"""Finds, lists and deletes studies in a storage, and works on several."""

from collections.abc import Sequence

from dsopt.api.storage import open_store
from dsopt.api.study import Study
from dsopt.api.workers import Devices, WorkerThread, work_on
from dsopt.errors import DsoptError
from dsopt.store.studies import NoStudiesError, StudyHeader


def load_study(name: str, *, storage: str | None = None) -> Study:
    """The study of that name.

    Args:
        name: the study's name.
        storage: URL of the database; by default DSOPT_STORAGE, else SQLite in the working directory.

    Raises:
        DsoptError: there is none, or the database cannot be used.
    """
    return load_studies([name], storage=storage)[0]


def load_studies(names: Sequence[str], *, storage: str | None = None) -> list[Study]:
    """The studies of these names, for one worker; they share their connections."""
    store = open_store(storage)
    try:
        return [Study(store, store.get(name)) for name in dict.fromkeys(names)]
    except DsoptError:
        store.close()
        raise


def load_unfinished(*, storage: str | None = None) -> tuple[list[Study], list[str]]:
    """All studies that are neither finished nor stopped, oldest first; they share their connections.

    Returns:
        The studies, and a message for each that cannot be read: such a study does not block the others.
    """
    try:
        store = open_store(storage)
    except NoStudiesError:
        return [], []
    found, problems = [], []
    for header in store.headers():
        if header.state not in ("finished", "stopped"):
            try:
                found.append(Study(store, store.get(header.name)))
            except DsoptError as error:
                problems.append(str(error))
    return found, problems


def list_studies(*, storage: str | None = None) -> list[StudyHeader]:
    """All studies, oldest first, each with `name`, `state` and `created_at` (seconds since the epoch).

    This includes those that only another version of dsopt can read. It creates no database.

    Raises:
        DsoptError: the database cannot be used.
    """
    try:
        store = open_store(storage)
    except NoStudiesError:
        return []
    try:
        return store.headers()
    finally:
        store.close()


def find_study(name: str, *, storage: str | None = None) -> StudyHeader:
    """The header of a study, whether or not this version can read the study.

    Raises:
        DsoptError: there is none.
    """
    store = open_store(storage)
    try:
        return store.header(name)
    finally:
        store.close()


def delete_study(name: str, *, storage: str | None = None) -> None:
    """Deletes a study from the database, whether or not this version can read it. Its files stay.

    Raises:
        DsoptError: there is none, or it is running and not stopped.
    """
    store = open_store(storage)
    try:
        store.delete(store.header(name))
    finally:
        store.close()


def start_worker(studies: Sequence[Study], devices: Devices = None) -> WorkerThread:
    """Starts a worker in a thread that works on studies, one after the other.

    Args:
        studies: of one database; the worker skips those that are finished or stopped.
        devices: as for `Study.start_worker`.

    Raises:
        DsoptError: the devices do not exist, or the studies are in different databases.
    """
    places = {study.storage for study in studies}
    if len(places) != 1:
        raise DsoptError(f"a worker works on studies of one database; these are in {len(places)}.")
    return work_on(studies[0]._store, [study._stored for study in studies], devices)
