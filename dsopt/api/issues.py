"""What maintainers need to look into an issue, without secrets."""

from dsopt.api.storage import open_store
from dsopt.errors import DsoptError
from dsopt.report import issue
from dsopt.store.studies import Store


def issue_report(study: str | None = None, *, storage: str | None = None) -> str:
    """Versions, configuration, command, states of runs and the last failure, as Markdown without secrets.

    Args:
        study: a study's name; None: the newest, or the versions alone if none can be read.
        storage: as for `create_study`.

    Raises:
        DsoptError: the named study cannot be read.
    """
    try:
        store = open_store(storage)
    except DsoptError as error:
        if study is not None:
            raise
        return issue.issue_report(f"cannot be read: {error}", None)
    try:
        return issue.issue_report(store.shown_url.partition(":")[0], _study_of(store, study))
    finally:
        store.close()


def _study_of(store: Store, name: str | None) -> issue.StudyReport | None:
    """The study of that name, or the newest one; None if there is none."""
    newest = store.headers()[-1:]
    if name is None and not newest:
        return None
    found = store.get(newest[0].name if name is None else name)
    return issue.StudyReport(
        spec=found.spec, state=found.state, note=found.note, runs=[dict(run) for run in store.runs(found)]
    )
