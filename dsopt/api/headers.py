"""Lists and deletes studies without reading them, and so without the modules that search and report."""

from dsopt.api.storage import open_store
from dsopt.store.stored import StudyHeader
from dsopt.store.studies import NoStudiesError


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
