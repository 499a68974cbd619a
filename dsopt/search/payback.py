"""What a run must be worth for its time, also where runs must pay for themselves (`stop_when: payback`)."""

from typing import Final

import numpy as np

from dsopt.search.history import History
from dsopt.search.run_cost import whole_seconds
from dsopt.study.spec import StudySpec

# What a run of mean length must add on average to the score of the best. Chosen on development scenarios: with more,
# a study ends earlier and finds less.
_LEAST: Final = 0.0025


def least_worth(spec: StudySpec, history: History) -> float:
    """What a run of mean length must add on average to the score of the best, relative."""
    share = share_of_training(spec, history)
    return _LEAST if share is None else share


def share_of_training(spec: StudySpec, history: History) -> float | None:
    """The share of the training that a run takes, on average so far; None if runs need not pay for themselves.

    Further runs of a configuration do not count: what ended one round must not change during the next.
    """
    if spec.stop_when != "payback":
        return None
    assert spec.training_hours is not None
    costs = [whole_seconds(spec, o) for o in history.everything if o.seconds is not None and not o.round]
    return float(np.mean(costs)) / (spec.training_hours * 3600) if costs else 0.0
