"""An ensemble of gradient-boosted trees (XGBoost) on resampled data: its prediction, and its spread."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SETTINGS: Final = {"max_depth": 3, "eta": 0.2, "min_child_weight": 1.0, "lambda": 2.0, "nthread": 1, "subsample": 0.8}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoostedTrees:
    """Boosters on resampled rows (the bootstrap; Breiman, "Bagging Predictors", 1996).

    Attributes:
        boosters: XGBoost's, at least two.
        drawn: how often each booster got each of the n rows, shape `(boosters, n)`.
        rows: the features that they were trained on, shape `(n, q)`.
    """

    boosters: tuple[Any, ...]
    drawn: NDArray[np.intp]
    rows: Array

    @classmethod
    def fitted(
        cls, features: Array, targets: Array, weights: Array, *, boosters: int = 5, rounds: int = 30, seed: int = 0
    ) -> "BoostedTrees":
        """Trains an ensemble.

        Args:
            features: of n rows, shape `(n, q)`; NaN: missing.
            targets: what to predict, around zero, shape `(n,)`.
            weights: of each row, shape `(n,)`.
            boosters: how many.
            rounds: trees in each.
            seed: of the resampling; the same one gives the same ensemble.
        """
        import xgboost  # 0.8 s: only searches that use the model pay for it

        random = np.random.default_rng(seed)
        trained, counts = [], []
        for number in range(boosters):
            drawn = np.bincount(random.integers(0, len(targets), len(targets)), minlength=len(targets))
            data = xgboost.DMatrix(features, label=targets, weight=weights * drawn, nthread=1)
            settings = {**_SETTINGS, "seed": number, "base_score": 0.0}
            trained.append(xgboost.train(settings, data, num_boost_round=rounds))
            counts.append(drawn)
        return cls(boosters=tuple(trained), drawn=np.array(counts), rows=features)

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Mean of the boosters and their standard deviation, both of shape `(n,)`, for features `(n, q)`."""
        predictions = self._each(features)
        return predictions.mean(axis=0), predictions.std(axis=0, ddof=1)

    def left_out(self) -> tuple[Array, Array]:
        """Mean and standard deviation for each training row, of the boosters that did not get it; shapes `(n,)`.

        NaN if fewer than two did not ("out-of-bag estimation", Breiman, 1996).
        """
        without = np.where(self.drawn == 0, self._each(self.rows), np.nan)
        count = (self.drawn == 0).sum(axis=0)
        total = np.nansum(without, axis=0)
        mean = np.where(count > 1, total / np.maximum(count, 1), np.nan)
        square = np.nansum((without - mean) ** 2, axis=0) / np.maximum(count - 1, 1)
        return mean, np.where(count > 1, np.sqrt(square), np.nan)

    def _each(self, features: Array) -> Array:
        import xgboost

        data = xgboost.DMatrix(features, nthread=1)
        return np.array([booster.predict(data) for booster in self.boosters], dtype=float)
