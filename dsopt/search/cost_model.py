"""Learns what the physical model of step times leaves unexplained, from runs of all stages and of earlier studies."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.optuna.trees import BoostedTrees
from dsopt.search.grid import Grid
from dsopt.study.space import Knob, Setting

Array = NDArray[np.float64]

_MIN_RUNS: Final = 8


class CostModel:
    """Gradient-boosted trees (XGBoost) on the residual of the logarithm of step times.

    The mean of an ensemble (`BoostedTrees`) is the prediction, and the spread of its boosters the uncertainty. Below
    eight runs it predicts 0 without uncertainty, so that the physical model and its discrepancy decide alone. A failure
    has no step time and never gets one.

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
        self._trees: BoostedTrees | None = None
        if len(residuals) >= _MIN_RUNS:
            self._trees = BoostedTrees.fitted(self._features(grid), residuals, weights)

    def predict(self, grid: Grid) -> tuple[Array, Array]:
        """Mean and standard deviation of each candidate's residual, both of shape `(n,)`."""
        if self._trees is None:
            return np.zeros(len(grid.which)), np.zeros(len(grid.which))
        return self._trees.predict(self._features(grid))

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
