"""Learns what the physical model of step times leaves over, from the runs of all stages and of earlier studies."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsopt.search.grid import Grid
from dsopt.study.space import Knob, Setting

Array = NDArray[np.float64]

_MIN_RUNS: Final = 8
_BOOSTERS: Final = 5
_ROUNDS: Final = 30
_SETTINGS: Final = {"max_depth": 3, "eta": 0.2, "min_child_weight": 1.0, "lambda": 2.0, "nthread": 1, "subsample": 0.8}


class CostModel:
    """Gradient-boosted trees (XGBoost) on the residual of the logarithm of step times.

    An ensemble of boosters on resampled runs (the bootstrap; Breiman, 1996), seeded: their mean is the prediction, and
    what they differ by its uncertainty. Below eight runs it predicts nothing, with no uncertainty of its own: the
    physical model and its discrepancy stand alone. A failure has no step time and is never given one.

    Args:
        grid: the n runs.
        residuals: of each, shape `(n,)`.
        weights: of each: 1 for this study's, less for those of earlier ones, shape `(n,)`.
    """

    def __init__(self, grid: Grid, residuals: Array, weights: Array) -> None:
        known = [pair for _, setting in grid.settings for pair in setting]
        self._knobs = sorted({key for key, _ in known})
        # texts have no order: each is a feature of its own
        self._texts = sorted({(key, value) for key, value in known if isinstance(value, str)})
        self._boosters: list[Any] = []
        if len(residuals) >= _MIN_RUNS:
            self._boosters = self._trained(self._features(grid), residuals, weights)

    def predict(self, grid: Grid) -> tuple[Array, Array]:
        """Mean and standard deviation of each candidate's residual, both of shape `(n,)`."""
        if not self._boosters:
            return np.zeros(len(grid.which)), np.zeros(len(grid.which))
        import xgboost

        data = xgboost.DMatrix(self._features(grid), nthread=1)
        predictions = np.array([booster.predict(data) for booster in self._boosters], dtype=float)
        return predictions.mean(axis=0), predictions.std(axis=0, ddof=1)

    def _trained(self, features: Array, residuals: Array, weights: Array) -> list[Any]:
        import xgboost  # 0.8 s: only searches that use the model pay for it

        random = np.random.default_rng(0)
        boosters = []
        for seed in range(_BOOSTERS):
            drawn = np.bincount(random.integers(0, len(residuals), len(residuals)), minlength=len(residuals))
            data = xgboost.DMatrix(features, label=residuals, weight=weights * drawn, nthread=1)
            boosters.append(
                xgboost.train({**_SETTINGS, "seed": seed, "base_score": 0.0}, data, num_boost_round=_ROUNDS)
            )
        return boosters

    def _features(self, grid: Grid) -> Array:
        """One row a candidate: log2 of micro-batch size and accumulation, stage, each knob as a number, each text."""
        settings = np.array([self._of_setting(stage, setting) for stage, setting in grid.settings])
        return np.column_stack([np.log2(grid.micro_batch), np.log2(grid.gas), settings[grid.which]])

    def _of_setting(self, stage: int, setting: Setting) -> Sequence[float]:
        knobs = dict(setting)
        numbers = [_number(knobs.get(key)) for key in self._knobs]
        return [float(stage), *numbers, *(float(knobs.get(key) == text) for key, text in self._texts)]


def _number(value: Knob | None) -> float:
    """A knob as a feature; XGBoost takes NaN as "not there"."""
    return math.nan if value is None or isinstance(value, str) else float(value)
