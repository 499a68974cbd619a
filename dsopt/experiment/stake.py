"""What further steps of a run are worth: when it has had enough of them, and when it can no longer become the best."""

import math
from dataclasses import dataclass
from typing import Final

from dsopt.experiment.measure import Measurement
from dsopt.protocol.text import significant
from dsopt.study.step_noise import StepNoise, mean_deviation

# those that whole steps show while a run is in progress
STAKED_METRICS: Final = ("throughput", "throughput_per_gpu", "latency")

# A run has lost where it lies so many standard deviations behind the best, even if launches differ by twice as much as
# is known: few of them have been repeated.
_SURELY: Final = 3.0
_DOUBT: Final = 2.0
# The earlier half of a run's steps is that many standard deviations slower where warm-up is left in it.
_SLOWER: Final = 1.0
_TIMES: Final = (1, 3, 10)  # as many further steps as there are are considered, and so many times as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """What is believed of a configuration before its run; scores are logarithms of the metric, larger being better.

    Attributes:
        metric: `throughput`, in samples/s; `throughput_per_gpu`; or `latency`, in milliseconds of a step.
        mean, variance: of its score; an infinite variance says that nothing is known.
        best: the score of the best other configuration; None without one.
        best_value: its metric.
        launch: variance of the scores of its launches.
        spread: variance between the scores of different configurations' launches beyond what models expect.
        noise: of steps, as all runs so far have shown it.
        per_second: what a second must add on average to the score of the best.
        may_stop: whether a run may be stopped because it has lost.
        gpus: how many it runs on, where the metric is that of one.
    """

    metric: str
    mean: float
    variance: float
    best: float | None
    best_value: float | None
    launch: float
    spread: float
    noise: StepNoise
    per_second: float
    may_stop: bool = True
    gpus: int = 1

    def is_enough(self, measurement: Measurement, seconds: float) -> bool:
        """Whether no number of further steps is worth its time.

        Further steps are worth it while they lower variance × time of the run, as against another launch (the
        square-root rule; Cochran, Sampling Techniques), and while what they may show could change which is best by
        more than they cost (the knowledge gradient; Frazier and Powell, 2010).

        Args:
            measurement: what the steps so far support.
            seconds: since the launch.
        """
        if not measurement.is_settled or self._warms_up(measurement):
            return False
        steps, one = measurement.measured_steps, self._of_one_step(measurement)
        now = seconds * (self.spread + one / steps)
        for more in (1, steps):
            if (seconds + more * measurement.step_seconds) * (self.spread + one / (steps + more)) < now:
                return False
        if self.best is None:
            return True
        mean, variance = self.believed(measurement)
        for more in (1, *(steps * times for times in _TIMES)):
            drop = math.sqrt(max(0.0, variance - self.believed(measurement, more)[1]))
            gain = drop * _loss(abs(mean - self.best) / drop) if drop > 0 else 0.0
            if gain > self.per_second * more * measurement.step_seconds:
                return False
        return True

    def lost(self, measurement: Measurement) -> str | None:
        """Why a run can no longer become the best, if so.

        Too few steps, or drifting ones, say nothing: they may be warm-up. The later half must say so, too.
        """
        if not self.may_stop or self.best is None or not measurement.is_settled:
            return None
        assert self.best_value is not None
        reachable = self.reachable(measurement)
        if reachable < self.best_value if self.metric == "latency" else reachable > self.best_value:
            return None
        if self.metric == "latency":
            return f"at least {significant(reachable)} ms/step, cannot beat {significant(self.best_value)}"
        unit = "samples/s" if self.metric == "throughput" else "samples/s/GPU"
        return f"at most {significant(reachable)} {unit}, cannot beat {significant(self.best_value)}"

    def reachable(self, measurement: Measurement) -> float:
        """The best metric that the configuration may have, very probably: by all its steps, or by the later half."""
        beliefs = [self.believed(steps, doubt=_DOUBT) for steps in (measurement, measurement.later_half)]
        most = max(mean + _SURELY * math.sqrt(variance) for mean, variance in beliefs)
        return math.exp(-most if self.metric == "latency" else most)

    def believed(self, measurement: Measurement, more: int = 0, doubt: float = 1.0) -> tuple[float, float]:
        """Mean and variance of the score after the steps so far, or after more of them that are like them.

        Args:
            measurement: what the steps so far support.
            more: steps.
            doubt: how many times as much launches may differ as is known.
        """
        steps = measurement.measured_steps + more
        noise = doubt**2 * self.launch + self._of_one_step(measurement) / steps
        seen = math.log(measurement.samples_per_second / self.gpus)
        if self.metric == "latency":
            seen = -math.log(measurement.step_seconds * 1000)
        if math.isinf(self.variance):
            return seen, noise
        variance = 1.0 / (1.0 / self.variance + 1.0 / noise)
        return variance * (self.mean / self.variance + seen / noise), variance

    def _warms_up(self, measurement: Measurement) -> bool:
        """Whether the earlier half of the steps is slower than the later one by more than the noise of all runs.

        The run's own noise would not do: what is left of a warm-up makes it look larger.
        """
        half = measurement.measured_steps // 2
        slower = 2 * (measurement.step_seconds - measurement.later_seconds) / measurement.step_seconds
        return slower > _SLOWER * math.sqrt(2) * self.noise.of_mean(half)

    def _of_one_step(self, measurement: Measurement) -> float:
        """Variance that a single step has, as far as the mean of many is concerned."""
        return mean_deviation(measurement.noise, self.noise) ** 2 * measurement.measured_steps


def _loss(distance: float) -> float:
    """By how much a standard normal number exceeds this on average."""
    density = math.exp(-0.5 * distance**2) / math.sqrt(2 * math.pi)
    return density - distance * 0.5 * math.erfc(distance / math.sqrt(2))
