"""How much a point is worth trying: expected improvement, and the chance that its trial succeeds."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.optuna.encoding import SearchSpace
from dsopt.optuna.evidence import Evidence
from dsopt.optuna.normal import log_ndtr, ndtr
from dsopt.optuna.surrogate import Surrogate

Array = NDArray[np.float64]

# A failed trial costs as much as this improvement is worth, relative to the spread of the scores.
_PRICE: Final = 0.2
_SOFT: Final = 0.3
_NOT_WORTH_IT: Final = -1000.0


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """The logarithm of it, which still distinguishes points where it is almost zero (Ament et al., 2023)."""
    above = (mean - best) / deviation
    far = above < -5.0
    near = np.where(far, 0.0, above)
    gain = np.log(np.maximum(near * ndtr(near) + np.exp(-0.5 * near**2) / math.sqrt(2 * math.pi), 1e-300))
    # far below the best: φ(z)/z², the first term of the tail's expansion
    down = np.where(far, above, -5.0)
    tail = -0.5 * down**2 - 0.5 * math.log(2 * math.pi) - 2.0 * np.log(-down)
    return np.log(deviation) + np.where(far, tail, gain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What points of a space are worth, given what is known of it.

    Attributes:
        space: whose points they are.
        objective: of the scores; None while no trial has one.
        best: the best score of a feasible trial, or the best prediction for a running one; None while there is none.
        violation: of the worst constraint; None if no trial has any.
        failure: 1 for trials that came to nothing, -1 for others; None if none came to nothing.
    """

    space: SearchSpace
    objective: Surrogate | None
    best: float | None
    violation: Surrogate | None
    failure: Surrogate | None

    @classmethod
    def of(cls, space: SearchSpace, known: Evidence, seed: int) -> "Worth":
        """Trains the surrogates."""

        def taught(values: Array, targets: Array) -> Surrogate | None:
            if not len(values):
                return None
            surrogate = Surrogate.fitted(space.features(values), targets, space.groups, seed)
            return surrogate.believing(space.features(known.pending))

        scores = tempered(known.scores)
        objective = taught(known.scored, scores)
        best = float(scores[known.feasible].max()) if known.feasible.any() else None
        if objective is not None and best is not None and len(known.pending):
            believed, _ = objective.predict(space.features(known.pending))
            best = max(best, float(believed.max()))
        violation = taught(known.judged, known.violations)
        failure = taught(known.ended, np.where(known.failed, 1.0, -1.0)) if known.failed.any() else None
        return cls(space=space, objective=objective, best=best, violation=violation, failure=failure)

    def __call__(self, values: Array) -> Array:
        """What n points are worth, shape `(n,)`, as logarithms, from values of shape `(n, p)`."""
        features = self.space.features(values)
        worth = np.zeros(len(values))
        if self.objective is not None and self.best is not None:
            mean, deviation = self.objective.predict(features)
            worth = log_expected_improvement(mean, deviation, self.best)
        risks = [risk.predict(features) for risk in (self.violation, self.failure) if risk is not None]
        if not risks:
            return worth
        chance = sum((log_ndtr(-mean / np.hypot(deviation, _SOFT)) for mean, deviation in risks), np.zeros(len(values)))
        price = _PRICE * self.objective.scale if self.objective is not None and self.best is not None else 0.0
        net = np.exp(worth + chance) + price * np.expm1(chance)
        # points that are not worth their risk come last, the least risky of them first
        return np.where(net > 0, np.log(np.maximum(net, 1e-300)), _NOT_WORTH_IT + np.maximum(chance, -100.0))


def tempered(scores: Array) -> Array:
    """Scores with the bad ones moved closer, so that they do not hide the differences between the good ones.

    Those above the median stay as they are; below it the distance grows by its logarithm.
    """
    if len(scores) < 3:
        return scores
    median = float(np.median(scores))
    scale = float(scores.max()) - median
    if scale <= 0:
        return scores
    below = np.maximum(0.0, (median - scores) / scale)
    drawn: Array = np.where(scores >= median, scores, median - scale * np.log1p(below))
    return drawn
