"""What a run has to gain where runs have to pay for themselves (`stop_when: payback`)."""

import numpy as np

from dsopt.search.history import History
from dsopt.study.spec import StudySpec


def share_of_training(spec: StudySpec, history: History) -> float | None:
    """The part of the training that a run takes, on average so far; None where runs need not pay for themselves.

    Runs of the confirmation are left out: what ended one of its rounds must not change while the next goes on.
    """
    if spec.stop_when != "payback":
        return None
    assert spec.training_hours is not None
    costs = [o.seconds for o in history.everything if o.seconds is not None and not o.round]
    return float(np.mean(costs)) / (spec.training_hours * 3600) if costs else 0.0
