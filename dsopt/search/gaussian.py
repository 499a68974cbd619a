"""A Gaussian belief about the weights of a linear model, updated by measurements and by bounds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsopt.optuna.normal import log_ndtr

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Weights ~ N(mean, covariance) of y = row · weights; shapes `(k,)` and `(k, k)`."""

    mean: Vector
    covariance: Vector

    @classmethod
    def independent(cls, mean: Vector, deviation: Vector) -> "Belief":
        """A prior with independent weights."""
        return cls(mean=np.asarray(mean, dtype=float), covariance=np.diag(np.asarray(deviation, dtype=float) ** 2))

    def measured(self, row: Vector, value: float, deviation: float) -> "Belief":
        """After y was measured with this standard deviation."""
        expected, variance, along = self._at(row)
        gain = along / (variance + deviation**2)
        return Belief(
            mean=self.mean + gain * (value - expected),
            covariance=self.covariance - np.outer(gain, along),
        )

    def above(self, row: Vector, bound: float, deviation: float) -> "Belief":
        """After y was seen to lie above a bound, which is known to this standard deviation.

        The truncated Gaussian is replaced by the Gaussian with its mean and variance (assumed-density filtering;
        Herbrich, "On Gaussian Expectation Propagation", 2005).
        """
        expected, variance, along = self._at(row)
        total = variance + deviation**2
        distance = (expected - bound) / np.sqrt(total)
        # the inverse Mills ratio φ/Φ, by logarithms, since both vanish for a belief that lies far below its bound
        ratio = float(np.exp(-0.5 * distance**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(distance)))
        return Belief(
            mean=self.mean + along * ratio / np.sqrt(total),
            covariance=self.covariance - np.outer(along, along) * ratio * (ratio + distance) / total,
        )

    def below(self, row: Vector, bound: float, deviation: float) -> "Belief":
        """After y was seen to lie below a bound."""
        return self.above(-row, -bound, deviation)

    def doubted(self, row: Vector, bound: float, deviation: float, of: Vector, most: float) -> "Belief":
        """With so much more variance of one weight (`of`, a unit vector) that y above a bound is no surprise.

        Args:
            most: standard deviations, the bound's own included, that y may be expected below the bound.
        """
        expected, variance, _ = self._at(row)
        missing = (max(0.0, bound - expected) / most) ** 2 - variance - deviation**2
        if missing <= 0:
            return self
        return Belief(mean=self.mean, covariance=self.covariance + missing / float(of @ row) ** 2 * np.outer(of, of))

    def predict(self, rows: Vector) -> tuple[Vector, Vector]:
        """Mean and variance of y for each of `rows`, shape `(n, k)`; both results have shape `(n,)`."""
        return rows @ self.mean, np.maximum(0.0, ((rows @ self.covariance) * rows).sum(axis=1))

    def _at(self, row: Vector) -> tuple[float, float, Vector]:
        """Mean and variance of one y, and its covariance with each weight."""
        along = self.covariance @ row
        return float(row @ self.mean), max(0.0, float(row @ along)), along
