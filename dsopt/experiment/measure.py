"""Step times into a measurement: warm-up found, mean with its 95 % interval, drift named."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

_MIN_STEPS = 8
_MIN_BATCHES = 8
_MAX_AUTOCORRELATION = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What the step times of one run support.

    Attributes:
        step_seconds: mean wall clock of an optimizer step after warm-up.
        half_width_seconds: half-width of the 95 % interval of that mean, by batch means.
        median_step_seconds: median after warm-up.
        warmup_steps: steps at the start that were left out.
        measured_steps: steps that the mean is taken over.
        samples_per_step: global samples in an optimizer step.
        drifting: whether the steps still became slower or faster while they were measured.
    """

    step_seconds: float
    half_width_seconds: float
    median_step_seconds: float
    warmup_steps: int
    measured_steps: int
    samples_per_step: int
    drifting: bool

    @property
    def samples_per_second(self) -> float:
        """Throughput of the whole job."""
        return self.samples_per_step / self.step_seconds

    @property
    def relative_half_width(self) -> float:
        """Half-width of the interval as a fraction of the mean."""
        return self.half_width_seconds / self.step_seconds

    def is_precise(self, precision: float) -> bool:
        """Whether enough was measured for this relative half-width, and the steps had settled."""
        return self.measured_steps >= _MIN_STEPS and self.relative_half_width <= precision and not self.drifting


def measure(
    seconds: Sequence[float],
    samples_per_step: int,
    precision: float,
    window: tuple[int, int] | None = None,
    min_warmup: int = 1,
) -> Measurement | None:
    """The measurement that these step times support, or None where there are too few for any.

    Args:
        seconds: wall clock of each optimizer step since the start, raw.
        samples_per_step: global samples in each.
        precision: relative difference above which a trend counts as drift.
        window: first and last step to measure, both included, where the user set them; otherwise warm-up is detected.
        min_warmup: steps that are warm-up in any case, where it is detected.
    """
    times = np.asarray(seconds, dtype=float)
    if window is not None:
        warmup = window[0]
        kept = times[window[0] : window[1] + 1]
    else:
        warmup = max(min_warmup, warmup_steps(times))
        kept = times[warmup:]
    if len(kept) < 2:
        return None
    return Measurement(
        step_seconds=float(kept.mean()),
        half_width_seconds=half_width(kept),
        median_step_seconds=float(np.median(kept)),
        warmup_steps=warmup,
        measured_steps=len(kept),
        samples_per_step=samples_per_step,
        drifting=window is None and is_drifting(kept, precision),
    )


def warmup_steps(times: NDArray[np.float64]) -> int:
    """How many steps at the start are warm-up, by the marginal standard error rule (MSER; White, 1997).

    The cut is where the standard error of what remains is smallest; at most the first half is cut, and at least the
    first step, in which allocators and communicators are set up.
    """
    n = len(times)
    if n < 4:
        return min(1, n)
    # mean and variance of every tail, from cumulative sums taken backwards
    counts = np.arange(n, 0, -1)
    sums = np.cumsum(times[::-1])[::-1]
    squares = np.cumsum((times**2)[::-1])[::-1]
    errors = (squares / counts - (sums / counts) ** 2) / counts
    return 1 + int(np.argmin(errors[1 : n // 2 + 1]))


def half_width(times: NDArray[np.float64]) -> float:
    """Half-width of the 95 % interval of the mean of correlated times, by batch means (Law & Kelton, chapter 9).

    Batches are doubled until their means are hardly correlated or too few would be left.
    """
    means, size = times, 1
    while len(times) // (2 * size) >= _MIN_BATCHES and _autocorrelation(means) > _MAX_AUTOCORRELATION:
        size *= 2
        count = len(times) // size
        means = times[len(times) - count * size :].reshape(count, size).mean(axis=1)
    return t_quantile(len(means) - 1) * float(means.std(ddof=1)) / math.sqrt(len(means))


def is_drifting(times: NDArray[np.float64], precision: float) -> bool:
    """Whether the last third differs from the first by more than `precision` and by more than chance (Welch, 1 %)."""
    third = len(times) // 3
    if third < 4:
        return False
    first, last = times[:third], times[-third:]
    difference = abs(float(last.mean() - first.mean()))
    error = math.sqrt((float(first.var(ddof=1)) + float(last.var(ddof=1))) / third)
    return difference > precision * float(times.mean()) and difference > t_quantile(2 * third - 2, 0.995) * error


def t_quantile(degrees_of_freedom: int, probability: float = 0.975) -> float:
    """Quantile of Student's t."""
    return float(stdtrit(degrees_of_freedom, probability))


def _autocorrelation(values: NDArray[np.float64]) -> float:
    centred = values - values.mean()
    variance = float(centred @ centred)
    return float(centred[:-1] @ centred[1:]) / variance if variance > 0 else 0.0
