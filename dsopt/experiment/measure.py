"""Turns step times into a measurement: detects the warm-up, gives the mean with its 95 % interval, detects drift."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dsopt.study.step_noise import StepNoise, inflation, likely_correlation

_MIN_STEPS = 12
_MIN_FREEDOM = 2.0
# a single step further than this from the others, in their standard deviations, is a straggler and not warm-up
_CHANCE_DEVIATION = 4.0
# a single step this many times as long as the median is a pause, such as a compilation or a stalled disk
_PAUSE = 10.0
_FEWEST_BESIDE_A_PAUSE = 4
_MAD_TO_DEVIATION = 1.4826  # median absolute deviation to standard deviation, of a normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What the step times of one run support.

    Attributes:
        step_seconds: mean wall clock of an optimizer step after warm-up.
        half_width_seconds: half-width of the 95 % interval of that mean (see `interval`).
        freedom: degrees of freedom of Student's t behind it.
        median_step_seconds: median after warm-up.
        warmup_steps: steps at the start that the mean leaves out.
        measured_steps: number of steps in the mean.
        samples_per_step: global samples in an optimizer step.
        skipped_steps: steps after warm-up that the mean leaves out: the optimizer skipped them, or they were fed other
            batches than most.
        drifting: whether the steps still became slower or faster during the measurement.
        pause_seconds: the one step that the mean leaves out because it was a pause; 0 if there was none. Two or more
            would come again, and count.
        deviation: standard deviation of a step, relative to the mean.
        correlation: of successive steps, as they showed it.
        later_seconds: mean of the later half of the steps in the mean, in which hardly any warm-up can be left.
    """

    step_seconds: float
    half_width_seconds: float
    median_step_seconds: float
    warmup_steps: int
    measured_steps: int
    samples_per_step: int
    drifting: bool
    freedom: float = math.inf  # earlier versions did not save it
    skipped_steps: int = 0
    pause_seconds: float = 0.0
    deviation: float = 0.0
    correlation: float = 0.0
    later_seconds: float = 0.0

    @property
    def samples_per_second(self) -> float:
        """Throughput of the whole job."""
        return self.samples_per_step / self.step_seconds

    @property
    def relative_half_width(self) -> float:
        """Half-width of the interval as a fraction of the mean."""
        return self.half_width_seconds / self.step_seconds

    @property
    def noise(self) -> StepNoise:
        """How much its steps differ."""
        return StepNoise(deviation=self.deviation, correlation=self.correlation, steps=self.measured_steps)

    @property
    def later_half(self) -> "Measurement":
        """By the later half of its steps alone."""
        steps = self.measured_steps - self.measured_steps // 2
        return replace(self, step_seconds=self.later_seconds, measured_steps=steps)

    @property
    def is_settled(self) -> bool:
        """Whether there are enough steps to be sure that warm-up is over, and whether they do not drift."""
        return self.measured_steps >= _MIN_STEPS and not self.drifting

    def is_precise(self, precision: float) -> bool:
        """Whether the steps had settled, and the interval has at most this relative half-width."""
        return self.is_settled and self.relative_half_width <= precision


def measure(
    seconds: Sequence[float],
    samples_per_step: int,
    precision: float,
    window: tuple[int, int] | None = None,
    min_warmup: int = 1,
    skipped: Sequence[int] = (),
) -> Measurement | None:
    """The measurement that these step times support, or None if there are too few.

    A step that the optimizer skipped is faster than others: it counts neither for the warm-up nor for the mean.

    Args:
        seconds: wall clock of each optimizer step since the start, raw.
        samples_per_step: global samples in each.
        precision: relative difference above which a trend counts as drift.
        window: first and last step to measure, inclusive, if the user set them; otherwise it detects the warm-up.
        min_warmup: if it detects the warm-up, the steps that are warm-up in any case.
        skipped: indices of the steps that the optimizer skipped.
    """
    times = np.asarray(seconds, dtype=float)
    applied = np.setdiff1d(np.arange(len(times)), skipped)
    warmup, end = (window[0], window[1] + 1) if window is not None else (min_warmup, len(times))
    if window is None and len(applied):
        warmup = max(warmup, int(applied[min(warmup_steps(times[applied]), len(applied) - 1)]))
    kept = times[applied[(applied >= warmup) & (applied < end)]]
    if len(kept) < 2:
        return None
    pauses = kept > _PAUSE * np.median(kept)
    pause = float(kept[pauses][0]) if pauses.sum() == 1 and len(kept) > _FEWEST_BESIDE_A_PAUSE else 0.0
    kept = kept[~pauses] if pause else kept
    noise = step_noise(kept)
    half_width, freedom = interval(kept, noise)
    return Measurement(
        step_seconds=float(kept.mean()),
        half_width_seconds=half_width,
        freedom=freedom,
        median_step_seconds=float(np.median(kept)),
        warmup_steps=warmup,
        measured_steps=len(kept),
        skipped_steps=sum(warmup <= index < end for index in skipped),
        samples_per_step=samples_per_step,
        pause_seconds=pause,
        deviation=noise.deviation,
        correlation=noise.correlation,
        later_seconds=float(kept[len(kept) // 2 :].mean()),
        drifting=window is None and is_drifting(kept, precision),
    )


def warmup_steps(times: NDArray[np.float64]) -> int:
    """How many steps at the start are warm-up, by the marginal standard error rule (MSER; White, 1997).

    MSER cuts where the standard error of the rest is smallest: at most the first half, and at least the first step, in
    which allocators and communicators are set up. On steady steps it would cut off the largest deviations and every
    early straggler, and the interval of the rest would be too narrow. So this clips deviations from the second half's
    median, and takes the earliest cut whose squared error exceeds the smallest by no more than one clipped step is
    worth.
    """
    n = len(times)
    if n < 4:
        return min(1, n)
    later = times[n // 2 :]
    middle = float(np.median(later))
    spread = _MAD_TO_DEVIATION * float(np.median(np.abs(later - middle)))
    # small numbers keep their digits in sums of squares
    times = np.clip(times - middle, -_CHANCE_DEVIATION * spread, _CHANCE_DEVIATION * spread)
    # mean and variance of every tail, from cumulative sums taken backwards
    counts = np.arange(n, 0, -1)
    sums = np.cumsum(times[::-1])[::-1]
    squares = np.cumsum((times**2)[::-1])[::-1]
    errors = ((squares / counts - (sums / counts) ** 2) / counts)[1 : n // 2 + 1]
    return 1 + int(np.argmax(errors <= errors.min() * (1 + _CHANCE_DEVIATION**2 / n)))


def interval(times: NDArray[np.float64], noise: StepNoise) -> tuple[float, float]:
    """Half-width in seconds of the 95 % interval of the mean of correlated times, and its degrees of freedom.

    It models steps as a first-order autoregression. It estimates the correlation, corrects it for the bias of short
    series (Kendall, 1954) and shrinks it towards a prior, since a dozen steps say almost nothing about it. The variance
    of the mean is that of a step times the variance inflation of such a series, divided by the number of steps. The
    degrees of freedom are those of the number of independent steps that would say as much.
    """
    n = len(times)
    inflated = inflation(likely_correlation(noise.correlation, n), n)
    # deviations from the sample's own mean lose as many degrees as its variance is inflated, not one
    variance = (noise.deviation * float(times.mean())) ** 2 * (n - 1) / (n - inflated)
    if variance == 0:
        return 0.0, n - 1.0
    freedom = min(n - 1.0, max(_MIN_FREEDOM, n / inflated - 1))
    return t_quantile(freedom) * math.sqrt(variance * inflated / n), freedom


def step_noise(times: NDArray[np.float64]) -> StepNoise:
    """How much these steps differ; the correlation is corrected for the bias of short series (Kendall, 1954)."""
    n, deviations = len(times), times - times.mean()
    total = float(deviations @ deviations)
    if total == 0:
        return StepNoise(deviation=0.0, correlation=0.0, steps=n)
    found = float(deviations[1:] @ deviations[:-1]) / total
    relative = math.sqrt(total / (n - 1)) / float(times.mean())
    return StepNoise(deviation=relative, correlation=found + (4 * found + 1) / n, steps=n)


def is_drifting(times: NDArray[np.float64], precision: float) -> bool:
    """Whether the last third differs from the first by more than `precision` and by more than chance (Welch, 1 %)."""
    third = len(times) // 3
    if third < 4:
        return False
    first, last = times[:third], times[-third:]
    difference = abs(float(last.mean() - first.mean()))
    error = math.sqrt((float(first.var(ddof=1)) + float(last.var(ddof=1))) / third)
    return difference > precision * float(times.mean()) and difference > t_quantile(2 * third - 2, 0.995) * error


def t_quantile(degrees_of_freedom: float, probability: float = 0.975) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit  # takes long to import, and who only reads figures needs none of it

    return float(stdtrit(degrees_of_freedom, probability))
