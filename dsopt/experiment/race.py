"""A run's race against the best so far: it is over as soon as the run can no longer win."""

import math
from dataclasses import dataclass
from typing import Final

from dsopt.experiment.measure import Measurement
from dsopt.study.launch_noise import MOST_BETWEEN_TWO

RACED_METRICS: Final = ("throughput", "latency")  # those that whole steps show while a run is in progress

_CONFIDENCE = 0.999  # of one look; dsopt looks after every step, and promises 99 % for all looks together


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What a run must be able to reach.

    Attributes:
        metric: `throughput`, in samples/s, where more is better; or `latency`, in milliseconds of a step.
        best: the best figure measured so far.
    """

    metric: str
    best: float

    def lost(self, measurement: Measurement) -> str | None:
        """Why a run can no longer win, if so: the most that it could reach is worse than the best.

        Too few steps, or drifting ones, say nothing: they may be warm-up.
        """
        if not measurement.is_settled:
            return None
        reachable = self.reachable(measurement)
        if self.metric == "latency":
            words = f"at least {reachable:.4g} ms/step, cannot beat {self.best:.4g}"
            return words if reachable > self.best else None
        words = f"at most {reachable:.4g} samples/s, cannot beat {self.best:.4g}"
        return words if reachable < self.best else None

    def reachable(self, measurement: Measurement) -> float:
        """The best metric that the run could reach, 99 % sure; of throughput infinite if nothing is known."""
        margin = math.hypot(measurement.relative_bound(_CONFIDENCE), MOST_BETWEEN_TWO)
        least_seconds = measurement.step_seconds * max(0.0, 1 - margin)
        if self.metric == "latency":
            return least_seconds * 1000
        return measurement.samples_per_step / least_seconds if least_seconds > 0 else math.inf
