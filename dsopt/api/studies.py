"""Loads studies from a storage, and works on several."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dsopt.api.storage import handed_on, open_store
from dsopt.api.study import Study
from dsopt.errors import DsoptError
from dsopt.store.studies import NoStudiesError

if TYPE_CHECKING:  # who only looks at a study needs none of it
    from dsopt.api.workers import Devices, WorkerThread


def load_study(name: str, *, storage: str | None = None) -> Study:
    """The study of that name.

    Args:
        name: the study's name.
        storage: URL of the database; by default DSOPT_STORAGE, else SQLite in the working directory.

    Raises:
        DsoptError: there is none, or the database cannot be used.
    """
    with handed_on(storage) as store:
        return Study(store, store.read(name))


def load_studies(names: Sequence[str], *, storage: str | None = None) -> list[Study]:
    """The studies of these names, for one worker; they share their connections.

    Raises:
        DsoptError: there is none of a name, or this node does not trust it.
    """
    with handed_on(storage) as store:
        return [Study(store, store.get(name)) for name in dict.fromkeys(names)]


def load_unfinished(*, storage: str | None = None) -> tuple[list[Study], list[str]]:
    """All studies that are neither finished nor stopped, oldest first; they share their connections.

    Returns:
        The studies, and a message for each that cannot be read: such a study does not block the others.
    """
    from dsopt.api.workers import unfinished

    try:
        with handed_on(storage) as store:
            found, problems = unfinished(store)
            return [Study(store, stored) for stored in found], problems
    except NoStudiesError:
        return [], []


def start_worker(
    studies: Sequence[Study] | None = None,
    devices: "Devices" = None,
    *,
    until_idle: bool = False,
    storage: str | None = None,
) -> "WorkerThread":
    """Starts a worker in a thread that works on studies, one after the other.

    Args:
        studies: of one database; the worker skips those that are finished or stopped. None: all that are neither, also
            those that are created while it works.
        devices: as for `Study.start_worker`.
        until_idle: whether it ends when there is nothing that it could begin, instead of waiting for other workers.
        storage: without `studies`, the database, as for `load_study`.

    Raises:
        DsoptError: the devices do not exist, the studies are in different databases, or there is no database.
    """
    from dsopt.api.workers import work_on, work_on_all

    if studies is None:
        return work_on_all(open_store(storage), devices, until_idle=until_idle)
    places = {study.storage for study in studies}
    if len(places) != 1:
        raise DsoptError(f"a worker works on studies of one database; these are in {len(places)}.")
    return work_on(studies[0]._store, [study._stored for study in studies], devices, until_idle=until_idle)
