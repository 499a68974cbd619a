"""Lists and deletes studies without reading them, and so without the modules that search and report."""

from dsopt.api.storage import looked_at, opened
from dsopt.store.stored import StudyHeader
from dsopt.store.studies import NoStudiesError


def list_studies(*, storage: str | None = None) -> list[StudyHeader]:
    """All studies, oldest first, each with `name`, `state` and `created_at` (seconds since the epoch).

    This includes those that only another version of dsopt can read. It creates no database.

    Raises:
        DsoptError: the database cannot be used.
    """
    try:
        with looked_at(storage) as store:
            return store.headers()
    except NoStudiesError:
        return []


def find_study(name: str, *, storage: str | None = None) -> StudyHeader:
    """The header of a study, whether or not this version can read the study.

    Raises:
        DsoptError: there is none.
    """
    with opened(storage) as store:
        return store.header(name)


def delete_study(name: str, *, storage: str | None = None) -> None:
    """Deletes a study from the database, whether or not this version can read it. Its files stay.

    Raises:
        DsoptError: there is none, it is running and not stopped, or another one starts from it that is not finished.
    """
    with opened(storage) as store:
        store.delete(store.header(name))
