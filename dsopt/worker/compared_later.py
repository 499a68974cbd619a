"""What a comparison of a study's best with the user's own configuration found, where it contradicts the study."""

import math

from dsopt.errors import DsoptError
from dsopt.report.compare import YOURS, comparison_table
from dsopt.report.optimal import measured_optimum
from dsopt.report.summary import Summary
from dsopt.search.history import History
from dsopt.search.standing import Ratio
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.comparison import OPTIMUM, compared_run, comparison_name
from dsopt.study.spec import StudySpec
from dsopt.worker.history import load_history


def comparison_version(store: Store, study: StoredStudy) -> int:
    """A number that changes whenever the study's comparison does; 0 without one."""
    found = _comparison(store, study)
    return store.now(found).version if found is not None else 0


def contradiction(store: Store, study: StoredStudy, summary: Summary, history: History) -> str | None:
    """A warning if a later comparison has another factor than the study tells, by their 95 % intervals.

    It launches both in turn, so it is the one to believe. It counts if it is finished, began after the study ended, and
    compares the same two: a study of this name may have been made anew, or have found another best since.
    """
    told = summary.comparison
    if told is None or told.interval is None:
        return None
    found = _comparison(store, study)
    if found is None or found.state != "finished" or found.created_at < (study.finished_at or math.inf):
        return None
    if not _is_of(found.spec, study.spec, history):
        return None
    table = comparison_table(found.spec, load_history(store, found), found.state)
    ratio = next((row.factor for row in table.rows if row.name == OPTIMUM), None)
    if table.reference != YOURS or ratio is None or _overlap(ratio, told.interval):
        return None
    low, high = ratio.interval
    return (
        f"WARNING: A later comparison found another factor: {ratio.factor:.2f} times (95 % interval {low:.2f} to "
        f"{high:.2f}). It launched both in turn: believe that one. See: dsopt study show {found.name}"
    )


def _is_of(comparison: StudySpec, study: StudySpec, history: History) -> bool:
    """Whether a comparison has the study's own configuration and its present best."""
    run, best = compared_run(comparison, OPTIMUM), measured_optimum(study, history)
    is_best = run is not None and (run.command, run.ds_config) == (str(best.command), best.ds_config)
    return is_best and comparison.ds_config == study.ds_config


def _overlap(ratio: Ratio, interval: tuple[float, float]) -> bool:
    return ratio.interval[0] <= interval[1] and interval[0] <= ratio.interval[1]


def _comparison(store: Store, study: StoredStudy) -> StoredStudy | None:
    """The comparison that `dsopt compare` makes of a study, under the name that it gives it; None: there is none."""
    try:
        found = store.read(comparison_name(study.name))
    except DsoptError:
        return None
    return found if found.spec.compare and found.spec.command == str(study.spec.resources) else None
