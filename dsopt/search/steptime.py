"""How long a step takes: a physical model with priors, fitted to the few existing runs, with its uncertainty.

    T = g·‖a, b·m‖ + x(c·V₁) + g·x(c·V₂) + w·W + offload,    each with effects of a few per cent

m is the micro-batch size and g the accumulation; a is what a micro-step costs whatever its size, b a sample's compute,
V₁ and V₂ the elements communicated in a step and in each micro-step, x the part of it that the backward pass does not
hide, W the parameters whose optimizer states a rank updates. The coefficients are positive and known to an order of
magnitude beforehand, relative to the baseline's step (`search/step_features.py`).

Sources: ZeRO (Rajbhandari et al., 2020), section 7, for the volumes: 2Ψ elements a step at stages 0 and 1, (g + 1)Ψ at
stage 2 and 3gΨ at stage 3. The posterior is Laplace's approximation (MacKay, 1992).
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsopt.search.facts import ModelFacts
from dsopt.search.grid import Grid
from dsopt.search.step_features import TERMS, Array, Features, Prior, StepFeatures, log_seconds
from dsopt.study.launch_noise import UNEXPLAINED
from dsopt.study.spec import StudySpec

# how far a candidate's true step time lies from any such model, before runs show it, and how many runs that is worth
_DISCREPANCY: Final = UNEXPLAINED
_DISCREPANCY_RUNS: Final = 6.0
_KNOBS_KNOWN: Final = 1.0  # how many effects of knobs their usual variance is worth
_MOST_TIMES: Final = 10.0  # that variance, or a part of it, as runs may show
_ITERATIONS: Final = 30
_DIFFERENCE: Final = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Step times of n runs, as logarithms of seconds, with the standard deviation of each; shapes `(n,)`."""

    grid: Grid
    log_seconds: Array
    deviation: Array


class StepTimeModel:
    """The logarithm of the step time of any candidate, as a Gaussian.

    Args:
        spec: the study.
        facts: of its baseline.
        own_seconds: the baseline's step time.
        timed: the runs so far.
        earlier: means and standard deviations of weights from earlier studies, instead of the general ones.
    """

    def __init__(
        self, spec: StudySpec, facts: ModelFacts, own_seconds: float, timed: Timed, earlier: Prior | None = None
    ) -> None:
        self._features = StepFeatures(spec, facts, own_seconds)
        prior = {name: (earlier or {}).get(name, general) for name, general in self._features.prior.items()}
        self._names = list(prior)
        self._prior_mean = np.array([mean for mean, _ in prior.values()])
        self._prior_precision = np.diag([deviation**-2.0 for _, deviation in prior.values()])
        self.mean = self._prior_mean
        self.covariance: NDArray[Any] = np.linalg.inv(self._prior_precision)
        self.discrepancy = _DISCREPANCY
        self._slopes: NDArray[Any] = np.zeros((0, len(self.mean)))  # of the runs
        if len(timed.log_seconds):
            features = self._features.of(timed.grid)
            fitted = self._fit(features, timed)
            self.discrepancy = self._estimated_discrepancy(timed, *fitted)
            self._scale_knobs()
            self._fit(features, timed)

    def predict(self, grid: Grid) -> tuple[Array, Array]:
        """Mean and standard deviation of the logarithm of each candidate's seconds a step; shapes `(n,)`.

        Without the discrepancy, which each candidate has for itself.
        """
        if not len(grid.which):
            return np.zeros(0), np.zeros(0)
        mean, slopes = _linearised(self._features.of(grid), self.mean)
        return mean, np.sqrt(((slopes @ self.covariance) * slopes).sum(axis=1))

    def linearised(self, grid: Grid) -> tuple[Array, Array]:
        """Mean of the logarithm of each candidate's seconds, `(n,)`, and its derivatives by weights, `(n, k)`."""
        return _linearised(self._features.of(grid), self.mean)

    @property
    def prior(self) -> tuple[Array, NDArray[Any]]:
        """What is known of the weights beforehand: their means less the fitted ones, `(k,)`, and precision `(k, k)`."""
        return self._prior_mean - self.mean, self._prior_precision

    def linear(self, grid: Grid, deviation: Array | None = None) -> tuple[Array, Array]:
        """Mean of the logarithm of each candidate's seconds a step, `(n,)`, and what varies with the weights, `(n, k)`.

        As weights of k independent standard normal numbers: their squares add up to the variance.

        Args:
            grid: the candidates.
            deviation: of the runs that the model was fitted to, if they are less sure, or surer, than they were then.
        """
        if not len(grid.which):
            return np.zeros(0), np.zeros((0, len(self.mean)))
        mean, slopes = _linearised(self._features.of(grid), self.mean)
        covariance = self.covariance if deviation is None else self._covariance(deviation)
        return mean, slopes @ np.linalg.cholesky(covariance)

    def _covariance(self, deviation: Array) -> NDArray[Any]:
        precision = 1.0 / (deviation**2 + self.discrepancy**2)
        found: NDArray[Any] = np.linalg.inv(self._prior_precision + (self._slopes.T * precision) @ self._slopes)
        return found

    def passed_on(self, shift: float, spread: float) -> Prior:
        """Mean and standard deviation of every weight, as the prior of a later study.

        Args:
            shift: the logarithm of how many times as long steps take there.
            spread: what else may differ between the two studies, as a standard deviation of logarithms.
        """
        passed: Prior = {}
        for name, mean, variance in zip(self._names, self.mean, np.diag(self.covariance), strict=True):
            general = self._features.prior[name][1]
            moved = float(mean) + (shift if name in TERMS else 0.0)
            passed[name] = (moved, min(general, math.hypot(math.sqrt(variance), min(spread, general))))
        return passed

    def _fit(self, features: Features, timed: Timed) -> tuple[Array, NDArray[Any]]:
        """The most probable weights (Gauss-Newton with Levenberg's damping) and the curvature there.

        Returns what `_linearised` tells of the runs with them.
        """
        precision = 1.0 / (timed.deviation**2 + self.discrepancy**2)

        def cost_of(weights: Array) -> float:
            off = weights - self._prior_mean
            misfit = log_seconds(features, weights) - timed.log_seconds
            return float(off @ self._prior_precision @ off + precision @ misfit**2)

        weights, damping = self._prior_mean, 1e-3
        cost = cost_of(weights)
        for _ in range(_ITERATIONS):
            mean, slopes = _linearised(features, weights)
            curvature = self._prior_precision + (slopes.T * precision) @ slopes
            gradient = self._prior_precision @ (weights - self._prior_mean)
            gradient = gradient + slopes.T @ (precision * (mean - timed.log_seconds))
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), gradient)
            changed = cost_of(weights - step)
            if changed > cost:
                damping *= 10.0
                continue
            is_done = cost - changed < 1e-6
            weights, cost, damping = weights - step, changed, damping / 3.0
            if is_done:
                break
        mean, slopes = _linearised(features, weights)
        self.mean, self._slopes = weights, slopes
        self.covariance = self._covariance(timed.deviation)
        return mean, slopes

    def _scale_knobs(self) -> None:
        """Gives the effects of knobs the scale that the runs show of all of them (MacKay, 1992, "Interpolation")."""
        group = [self._names.index(name) for name in self._features.alike]
        if not group:
            return
        beforehand = 1.0 / self._prior_precision[group, group]
        shown = float(np.sum(1 - np.diag(self.covariance)[group] / beforehand))  # how many of them the runs determine
        found = float(np.sum((self.mean - self._prior_mean)[group] ** 2 / beforehand))
        times = (_KNOBS_KNOWN + found) / (_KNOBS_KNOWN + shown)
        self._prior_precision[group, group] /= min(max(times, 1 / _MOST_TIMES), _MOST_TIMES)

    def _estimated_discrepancy(self, timed: Timed, mean: Array, slopes: NDArray[Any]) -> float:
        """How far the runs differ from the fit, beyond their noise; shrunk towards the prior until there are many."""
        misfit = mean - timed.log_seconds
        precision = 1.0 / (timed.deviation**2 + self.discrepancy**2)
        # what is left of each run after the weights have been drawn towards it
        left = 1 - ((slopes @ self.covariance) * slopes).sum(axis=1) * precision
        excess = max(0.0, float(np.sum(misfit**2 - left * timed.deviation**2)))
        variance = (_DISCREPANCY_RUNS * _DISCREPANCY**2 + excess) / (_DISCREPANCY_RUNS + float(left.sum()))
        return math.sqrt(max(variance, (0.4 * _DISCREPANCY) ** 2))


def _linearised(features: Features, weights: Array) -> tuple[Array, Array]:
    """The logarithm of seconds `(n,)` and its derivatives by the weights `(n, k)`."""
    mean = log_seconds(features, weights)
    linear = features.effects.shape[1]
    slopes = np.empty((len(mean), len(weights)))
    slopes[:, len(weights) - linear :] = features.effects
    moved = weights + _DIFFERENCE * np.eye(len(weights) - linear, len(weights))
    slopes[:, : len(weights) - linear] = (log_seconds(features, moved) - mean).T / _DIFFERENCE
    return mean, slopes
