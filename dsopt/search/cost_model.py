"""Learns the metric from the trials of all stages, so that a stage begins with what the ones before it have shown."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsopt.search.history import Observation
from dsopt.study.space import Candidate, Knob

_MIN_OBSERVATIONS = 3
_ROUNDS = 40


class CostModel:
    """Gradient-boosted trees (XGBoost) on the logarithm of the metric of measured candidates.

    A failure has no metric and is never given one: what ran out of memory or failed is left out of the training data.
    """

    def __init__(self, observations: Sequence[Observation]) -> None:
        self._measured = [o for o in observations if o.candidate is not None and o.value is not None and o.value > 0]
        known = [pair for o in self._measured if o.candidate for pair in o.candidate.knobs]
        self._knobs = sorted({key for key, _ in known})
        # texts have no order: each is a feature of its own
        self._texts = sorted({(key, value) for key, value in known if isinstance(value, str)})
        self._booster: Any = None

    @property
    def is_ready(self) -> bool:
        """Whether there is enough to learn from."""
        return len(self._measured) >= _MIN_OBSERVATIONS

    def predict(self, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """Predicted metric of each candidate, shape `(len(candidates),)`. Needs `is_ready`."""
        import xgboost  # 0.8 s: only searches that use the model pay for it

        if self._booster is None:
            known = [o.candidate for o in self._measured if o.candidate is not None]
            targets = np.log([o.value for o in self._measured if o.value is not None])
            data = xgboost.DMatrix(self._features(known), label=targets)
            settings = {"max_depth": 3, "eta": 0.3, "min_child_weight": 0.5, "lambda": 0.1, "nthread": 1, "seed": 0}
            settings["base_score"] = float(targets.mean())
            self._booster = xgboost.train(settings, data, num_boost_round=_ROUNDS)
        logarithms: NDArray[np.float64] = self._booster.predict(xgboost.DMatrix(self._features(candidates)))
        return np.exp(logarithms)

    def _features(self, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """One row a candidate: stage, log2 of micro-batch size and accumulation, each knob as a number, each text."""
        rows = []
        for candidate in candidates:
            knobs = dict(candidate.knobs)
            sizes = [float(candidate.stage), math.log2(candidate.micro_batch), math.log2(candidate.gas)]
            numbers = [_number(knobs.get(key)) for key in self._knobs]
            rows.append(sizes + numbers + [float(knobs.get(key) == text) for key, text in self._texts])
        return np.array(rows, dtype=float)


def _number(value: Knob | None) -> float:
    """A knob as a feature; XGBoost takes NaN as "not there"."""
    return float("nan") if value is None or isinstance(value, str) else float(value)
