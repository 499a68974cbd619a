"""Scores as one Gaussian over all candidates, and what another run is worth by it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.optuna.normal import ndtri

Array = NDArray[np.float64]

# Equally likely values of a standard normal number, at which an expectation is taken.
_NODES: Final = 48
# So many of the best may still be chosen; further ones add nothing to what a run is worth.
_CONTENDERS: Final = 12
_AT_ONCE: Final = 2000  # candidates, for the sake of memory
_DRAWS: Final = 8000
_HALVINGS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Gaussian scores of n things.

    Attributes:
        mean: `(n,)`.
        common: what they have in common, as weights of k independent standard normal numbers, `(n, k)`.
        own: variance that each has for itself, `(n,)`.
    """

    mean: Array
    common: Array
    own: Array

    def take(self, which: Sequence[int] | NDArray[np.intp]) -> "Scores":
        """Those of some of the things."""
        kept = np.asarray(which, dtype=int)
        return Scores(mean=self.mean[kept], common=self.common[kept], own=self.own[kept])

    @property
    def variance(self) -> Array:
        """Of each, `(n,)`."""
        found: Array = (self.common**2).sum(axis=1) + self.own
        return found

    def difference(self, one: int, other: int) -> tuple[float, float]:
        """Mean and standard deviation of how much better one of them is than another."""
        common = self.common[one] - self.common[other]
        variance = float(common @ common + self.own[one] + self.own[other])
        return float(self.mean[one] - self.mean[other]), math.sqrt(variance)


def worth_of_first(new: Scores, winners: Scores, noise: Array) -> Array:
    """What a first run of each of n candidates adds on average to the score of the best that has run, `(n,)`.

    The knowledge gradient with correlated beliefs (Frazier, Powell and Dayanik, 2009), among the winners and the
    candidate itself: what has not run is never chosen.

    Args:
        new: candidates that have not run.
        winners: what has run and may be chosen, at least one.
        noise: variance of a run of each candidate, `(n,)`.
    """
    variance = new.variance
    spread = np.sqrt(variance + noise)
    winners = winners.take(np.argsort(-winners.mean, kind="stable")[:_CONTENDERS])
    return _gain(winners, (winners.common @ new.common.T) / spread, (new.mean, variance / spread))


def worth_of_another(winners: Scores, noise: Array) -> Array:
    """What another run of each of n winners adds on average to the score of the best, `(n,)`."""
    covariance = winners.common @ winners.common.T + np.diag(winners.own)
    return _gain(winners, covariance / np.sqrt(np.diag(covariance) + noise))


def _gain(winners: Scores, changes: Array, new: tuple[Array, Array] | None = None) -> Array:
    """The mean rise of the largest score, where a standard normal number changes each by so much.

    Args:
        winners: n of them.
        changes: of their means by each of m runs, `(n, m)`.
        new: mean and change of a thing that only that run adds, each `(m,)`.
    """
    nodes = ndtri((np.arange(_NODES) + 0.5) / _NODES)
    kept = np.argsort(-winners.mean, kind="stable")[:_CONTENDERS]
    gains = np.empty(changes.shape[1])
    for first in range(0, len(gains), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        most = (winners.mean[kept, None, None] + changes[kept, part, None] * nodes).max(axis=0)
        if new is not None:
            most = np.maximum(most, new[0][part, None] + new[1][part, None] * nodes)
        gains[part] = most.mean(axis=1) - winners.mean.max()
    return np.maximum(gains, 0.0)


def chances(probabilities: Array, scores: Sequence[Scores], chosen: int) -> tuple[Array, float]:
    """Each thing's probability of being the best, `(n,)`, and the expected loss from choosing one of them.

    By simulation, seeded.

    Args:
        probabilities: of each of f beliefs, `(f,)`.
        scores: of the n things by each of these beliefs.
        chosen: which of the things.
    """
    random = np.random.default_rng(0)
    wins, loss = np.zeros(len(scores[0].mean)), 0.0
    counts = np.diff(np.round(_DRAWS * np.cumsum(probabilities)), prepend=0.0).astype(int)
    for count, each in zip(counts, scores, strict=True):
        draws = each.common @ random.standard_normal((each.common.shape[1], count))
        draws += each.mean[:, None] + np.sqrt(each.own)[:, None] * random.standard_normal((len(each.mean), count))
        wins += np.bincount(draws.argmax(axis=0), minlength=len(wins))
        loss += float(np.sum(draws.max(axis=0) - draws[chosen]))
    return wins / _DRAWS, loss / _DRAWS


def interval(weights: Array, means: Array, deviations: Array) -> tuple[float, float]:
    """The 95 % interval of a mixture of Gaussians; all of shape `(n,)`."""

    def quantile(probability: float) -> float:
        low, high = float((means - 9 * deviations).min()), float((means + 9 * deviations).max())
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            parts = [0.5 * math.erfc(-z / math.sqrt(2)) for z in (middle - means) / deviations]
            is_below = float(weights @ np.array(parts)) < probability
            low, high = (middle, high) if is_below else (low, middle)
        return high

    return quantile(0.025), quantile(0.975)
