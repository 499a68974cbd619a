"""What trials teach about untried points: a smooth process, and trees that learn its errors."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.optuna.gaussian_process import GaussianProcess
from dsopt.optuna.trees import BoostedTrees

Array = NDArray[np.float64]

_BOOSTERS: Final = 8
_FEWEST_FOR_TREES: Final = 8
_LEAST_EXPLAINED: Final = 0.2  # of what the process leaves over, by the trees on points they were not given


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """A Gaussian process, and boosted trees on its errors at points left out of its training.

    The trees count only as far as they predict those errors at points left out of their own training: for a smooth
    function they say nothing, for one with steps or interacting categories they correct the process.

    Attributes:
        centre: mean of the targets.
        scale: their standard deviation.
        process: trained on standardised targets.
        trees: trained on its errors; None while there are too few points.
        share: the factor of the trees' predictions, 0 to 1.
    """

    centre: float
    scale: float
    process: GaussianProcess
    trees: BoostedTrees | None
    share: float

    @classmethod
    def fitted(cls, rows: Array, targets: Array, groups: NDArray[np.intp], seed: int) -> "Surrogate":
        """Trains both.

        Args:
            rows: features of n points, shape `(n, q)`, n at least 1.
            targets: finite numbers, shape `(n,)`.
            groups: which parameter each feature belongs to, shape `(q,)`.
            seed: of the trees.
        """
        centre, scale = float(targets.mean()), float(targets.std()) or 1.0
        standard = (targets - centre) / scale
        process = GaussianProcess.fitted(rows, standard, groups)
        if len(rows) < _FEWEST_FOR_TREES:
            return cls(centre=centre, scale=scale, process=process, trees=None, share=0.0)
        expected, _ = process.left_out()
        left_over = standard - expected
        trees = BoostedTrees.fitted(rows, left_over, np.ones(len(rows)), boosters=_BOOSTERS, seed=seed)
        return cls(centre=centre, scale=scale, process=process, trees=trees, share=_share(left_over, trees))

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """Mean and standard deviation at m points of shape `(m, q)`, in the unit of the targets; shapes `(m,)`."""
        mean, deviation = self.process.predict(rows)
        if self.trees is not None and self.share > 0:
            error, spread = self.trees.predict(rows)
            mean = mean + self.share * error
            deviation = np.sqrt(deviation**2 + (self.share * spread) ** 2)
        return self.centre + self.scale * mean, self.scale * np.maximum(deviation, 1e-9)

    def believing(self, rows: Array) -> "Surrogate":
        """As if points that still run, of shape `(m, q)`, had come out as the process predicts."""
        return replace(self, process=self.process.believing(rows))


def _share(left_over: Array, trees: BoostedTrees) -> float:
    """The factor of the trees' predictions that minimises the remaining errors; 0 if that helps little."""
    expected, _ = trees.left_out()
    known = np.isfinite(expected)
    told, errors = expected[known], left_over[known]
    if len(told) < _FEWEST_FOR_TREES // 2 or not told.any():
        return 0.0
    share = float(np.clip(told @ errors / (told @ told), 0.0, 1.0))
    after = float(((errors - share * told) ** 2).mean())
    return share if after < (1.0 - _LEAST_EXPLAINED) * float((errors**2).mean()) else 0.0
