"""A study as one file: HTML, Markdown or JSON."""

from dsopt.api.storage import opened
from dsopt.web.report import Report, report_of

__all__ = ["Report", "study_report"]


def study_report(study: str, *, storage: str | None = None) -> Report:
    """The report of a study as it stands now: `html()`, `markdown()` and `to_json()`.

    Args:
        study: its name.
        storage: URL of the database; by default as for `load_study`.

    Raises:
        DsoptError: there is none, or the database cannot be used.
    """
    with opened(storage) as store:
        return report_of(store, store.read(study))
