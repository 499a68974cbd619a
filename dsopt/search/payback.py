"""What a run must gain if runs must pay for themselves (`stop_when: payback`)."""

import numpy as np

from dsopt.search.history import History
from dsopt.study.spec import StudySpec


def share_of_training(spec: StudySpec, history: History) -> float | None:
    """The share of the training that a run takes, on average so far; None if runs need not pay for themselves.

    Confirmation runs do not count: what ended one round must not change during the next.
    """
    if spec.stop_when != "payback":
        return None
    assert spec.training_hours is not None
    costs = [o.seconds for o in history.everything if o.seconds is not None and not o.round]
    return float(np.mean(costs)) / (spec.training_hours * 3600) if costs else 0.0
