"""How much the steps of a run differ, and what all runs of a study say of that together."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# What is assumed of steps before any run has shown them, and how many independent steps that is worth.
_DEVIATION: Final = 0.04
_FREEDOM: Final = 2.0
# The correlation of successive steps that is assumed until steps outweigh it, and how many steps that takes. Chosen so
# that intervals cover as much as they promise in `benchmarks/coverage.py`.
_CORRELATION: Final = 0.5
_STEPS: Final = 40
_MOST_CORRELATION: Final = 0.9
_CLOSE_TO_ONE: Final = 0.999
# how likely the steps of one run differ so much, or so little, by chance, before they count for themselves
_BY_CHANCE: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNoise:
    """The noise of steps, as a first-order autoregression.

    Attributes:
        deviation: standard deviation of a step, relative to the mean.
        correlation: of successive steps; of a single run as it was seen, which says little.
        steps: how many steps showed it.
    """

    deviation: float
    correlation: float
    steps: int

    @property
    def freedom(self) -> float:
        """Degrees of freedom of `deviation`: independent steps that say as much, less one for their mean."""
        return max(0.0, self.steps / inflation(self.correlation, self.steps) - 1) if self.steps else 0.0

    def of_mean(self, steps: int) -> float:
        """Standard deviation of the mean of so many steps, relative to it."""
        return self.deviation * math.sqrt(inflation(self.correlation, steps) / steps)


def inflation(correlation: float, steps: int) -> float:
    """How many times as large the variance of the mean is as that of as many independent steps.

    One that is corrected for the bias of short series may lie beyond what a correlation can be.
    """
    rho = min(max(correlation, -_CLOSE_TO_ONE), _CLOSE_TO_ONE)
    return (1 + rho) / (1 - rho) - 2 * rho * (1 - rho**steps) / (steps * (1 - rho) ** 2)


def likely_correlation(seen: float, steps: int) -> float:
    """What a correlation that so many steps showed probably is: few of them say almost nothing."""
    likely = (steps * seen + _STEPS * _CORRELATION) / (steps + _STEPS)
    return min(max(likely, 0.0), _MOST_CORRELATION)


def pooled(noises: Iterable[StepNoise]) -> StepNoise:
    """What several runs say together, with what is assumed before any; `steps` are those that were seen."""
    known = list(noises)
    steps = sum(noise.steps for noise in known)
    seen = sum(noise.steps * noise.correlation for noise in known) / steps if steps else 0.0
    correlation = likely_correlation(seen, steps)
    freedom = [max(0.0, noise.steps / inflation(correlation, noise.steps) - 1) for noise in known]
    squares = _FREEDOM * _DEVIATION**2 + sum(f * n.deviation**2 for f, n in zip(freedom, known, strict=True))
    deviation = math.sqrt(squares / (_FREEDOM + sum(freedom)))
    return StepNoise(deviation=deviation, correlation=correlation, steps=steps)


def mean_deviation(own: StepNoise, all_runs: StepNoise) -> float:
    """Standard deviation of a run's mean, relative to it.

    By the noise of all runs, unless the run's own differs from that by more than chance (F test, 1 %).
    """
    alone = StepNoise(deviation=own.deviation, correlation=all_runs.correlation, steps=own.steps)
    if alone.freedom > 0 and all_runs.deviation > 0:
        ratio = (own.deviation / all_runs.deviation) ** 2
        chance = _f_probability(ratio, alone.freedom, all_runs.freedom + _FREEDOM)
        if not _BY_CHANCE < chance < 1 - _BY_CHANCE:
            return alone.of_mean(own.steps)
    return all_runs.of_mean(own.steps)


def _f_probability(ratio: float, freedom: float, other: float) -> float:
    """Probability that an F-distributed number is at most `ratio`: its cube root is nearly normal (Paulson, 1942)."""
    mine, theirs = 2 / (9 * freedom), 2 / (9 * other)
    root = ratio ** (1 / 3)
    normal = ((1 - theirs) * root - (1 - mine)) / math.sqrt(theirs * root**2 + mine)
    return 0.5 * math.erfc(-normal / math.sqrt(2))
