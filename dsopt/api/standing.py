"""Where a study stands, with what goes on in it now."""

from dsopt.protocol.text import significant
from dsopt.report.files import were_scaled
from dsopt.report.rows import Row, bound_text
from dsopt.report.standing import Standing, standing_of
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.worker.history import load_history
from dsopt.worker.results import running_now, summary_of

__all__ = ["Row", "Standing", "bound_text", "significant", "standing"]


def standing(store: Store, study: StoredStudy) -> Standing:
    """Where a study stands now."""
    history = load_history(store, study)
    return standing_of(
        study.spec,
        history,
        summary_of(store, study, history),
        running_now(store, study),
        scaled=were_scaled(study.spec, study.created_at, study.finished_at),
    )
