"""The best configuration of a finished study, as a candidate."""

from dsopt.search.history import BASELINE, History
from dsopt.search.standing import compare
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec


def optimal_candidate(spec: StudySpec, history: History) -> Candidate | None:
    """The best configuration as a candidate; None when it is the user's own.

    Only for histories for which `compare` gives a result.
    """
    result = compare(spec, history)
    assert result is not None
    if result.best == BASELINE:
        return None
    return next(o.candidate for o in history.measured if o.name == result.best)
