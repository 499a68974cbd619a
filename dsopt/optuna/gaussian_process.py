"""A Gaussian process, as smooth along each parameter as the trials show: predicts between and around them."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Priors of the logarithms, as mean and standard deviation: lengths relative to a parameter's range, amplitude relative
# to the deviation of the targets, noise as a variance. Lengths grow with the square root of the number of parameters
# (Hvarfner et al., "Vanilla Bayesian Optimization Performs Great in High Dimensions", 2024).
_LENGTH: Final = (math.log(0.5), 1.0)
_AMPLITUDE: Final = (0.0, 1.0)
_NOISE: Final = (math.log(1e-3), 2.0)
_LEAST_NOISE: Final = 1e-6
_MOST_STEPS: Final = 40
_ROOT5: Final = math.sqrt(5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianProcess:
    """Targets as a Gaussian process with a Matérn 5/2 kernel (Rasmussen and Williams, 2006).

    Attributes:
        rows: features of the n points, shape `(n, q)`.
        targets: around zero, with a deviation of about one, shape `(n,)`.
        lengths: the distance along each feature over which targets stay similar, shape `(q,)`.
        amplitude: variance of the process.
        noise: variance of what does not repeat.
        precision: inverse of the covariance of the targets, shape `(n, n)`.
    """

    rows: Array
    targets: Array
    lengths: Array
    amplitude: float
    noise: float
    precision: Array

    @classmethod
    def fitted(cls, rows: Array, targets: Array, groups: NDArray[np.intp]) -> "GaussianProcess":
        """The most likely process, given its priors (maximum a posteriori).

        Args:
            rows: features of n points, shape `(n, q)`.
            targets: of each, around zero, shape `(n,)`.
            groups: which parameter each feature belongs to; those of one share a length; shape `(q,)`.
        """
        from scipy.optimize import minimize

        axes = int(groups.max()) + 1
        squares = np.zeros((axes, len(rows), len(rows)))
        for feature, axis in enumerate(groups):
            squares[axis] += (rows[:, None, feature] - rows[None, :, feature]) ** 2
        means = np.array([*[_LENGTH[0] + 0.5 * math.log(axes)] * axes, _AMPLITUDE[0], _NOISE[0]])
        deviations = np.array([*[_LENGTH[1]] * axes, _AMPLITUDE[1], _NOISE[1]])
        found = minimize(
            _loss, means, args=(squares, targets, means, deviations), jac=True, method="L-BFGS-B",
            bounds=[*[(math.log(0.02), math.log(50.0))] * axes, (-4.0, 4.0), (math.log(_LEAST_NOISE), 1.0)],
            options={"maxiter": _MOST_STEPS},
        )  # fmt: skip
        lengths = np.exp(found.x[:axes])[groups]
        amplitude, noise = float(np.exp(found.x[axes])), float(np.exp(found.x[axes + 1]))
        return cls._of(rows, targets, lengths, amplitude, noise)

    @classmethod
    def _of(cls, rows: Array, targets: Array, lengths: Array, amplitude: float, noise: float) -> "GaussianProcess":
        covariance = amplitude * _matern(_distances(rows / lengths, rows / lengths))
        precision = np.linalg.inv(covariance + (noise + 1e-9) * np.eye(len(rows))).astype(float)
        return cls(
            rows=rows, targets=targets, lengths=lengths, amplitude=amplitude, noise=noise, precision=precision
        )  # fmt: skip

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """Mean and standard deviation at m points of shape `(m, q)`, without noise; both of shape `(m,)`."""
        known = self.amplitude * _matern(_distances(rows / self.lengths, self.rows / self.lengths))
        mean = known @ (self.precision @ self.targets)
        variance = self.amplitude - ((known @ self.precision) * known).sum(axis=1)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def left_out(self) -> tuple[Array, Array]:
        """Mean and standard deviation at each point from all others (Rasmussen and Williams, 5.4.2); shapes `(n,)`."""
        own = np.diag(self.precision)
        return self.targets - (self.precision @ self.targets) / own, np.sqrt(1.0 / own)

    def believing(self, rows: Array) -> "GaussianProcess":
        """As if m points of shape `(m, q)` had come out as expected (Ginsbourger et al., 2010)."""
        if not len(rows):
            return self
        expected, _ = self.predict(rows)
        all_rows, targets = np.vstack([self.rows, rows]), np.concatenate([self.targets, expected])
        return self._of(all_rows, targets, self.lengths, self.amplitude, self.noise)


def _distances(rows: Array, others: Array) -> Array:
    squares = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None, :] - 2.0 * rows @ others.T
    distances: Array = np.sqrt(np.maximum(squares, 0.0))
    return distances


def _matern(distances: Array) -> Array:
    scaled = _ROOT5 * distances
    kernel: Array = (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)
    return kernel


def _loss(at: Array, squares: Array, targets: Array, means: Array, deviations: Array) -> tuple[float, Array]:
    """Negative logarithm of the posterior of the logarithms of lengths, amplitude and noise; and its gradient."""
    axes = len(squares)
    inverse = np.exp(-2.0 * at[:axes])
    amplitude, noise = math.exp(at[axes]), math.exp(at[axes + 1])
    scaled = _ROOT5 * np.sqrt(np.tensordot(inverse, squares, axes=1))
    decay = amplitude * np.exp(-scaled)
    kernel = (1.0 + scaled + scaled**2 / 3.0) * decay
    covariance = kernel + (noise + 1e-9) * np.eye(len(targets))
    away = (at - means) / deviations
    try:
        lower = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return 1e10, np.zeros_like(at)
    precision = np.linalg.inv(covariance)
    weights = precision @ targets
    loss = 0.5 * targets @ weights + np.log(np.diag(lower)).sum() + 0.5 * (away**2).sum()
    slope = precision - np.outer(weights, weights)
    by_length = 0.5 * (5.0 / 3.0) * inverse * np.tensordot(squares, slope * (1.0 + scaled) * decay, axes=2)
    by_amplitude, by_noise = 0.5 * (slope * kernel).sum(), 0.5 * noise * np.trace(slope)
    gradient = np.array([*by_length, by_amplitude, by_noise]) + away / deviations
    return float(loss), gradient
