"""A run's race against the best so far: it is over as soon as the run cannot win any more."""

import math
from dataclasses import dataclass
from typing import Final

from dsopt.experiment.measure import Measurement

RACED_METRICS: Final = ("throughput", "latency")  # those that whole steps tell while a run goes on

_CONFIDENCE = 0.999  # of one look; a run is looked at after every step, and 99 % is promised of all looks together
# What two launches of one configuration differ by at most, as a fraction of their means, in 99 % of cases: one or two
# per cent each are usual, and the best was the luckiest of many. The steps of one run say nothing of it.
_BETWEEN_LAUNCHES = 0.047


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What a run has to be able to reach.

    Attributes:
        metric: `throughput`, in samples/s, where more is better; or `latency`, in milliseconds of a step.
        best: the best that was measured.
    """

    metric: str
    best: float

    def lost(self, measurement: Measurement) -> str | None:
        """Why a run cannot win any more, if so: what it could reach at most is worse than the best.

        Steps that are too few or drift say nothing: they may be warm-up.
        """
        if not measurement.is_settled:
            return None
        margin = math.hypot(measurement.relative_bound(_CONFIDENCE), _BETWEEN_LAUNCHES)
        least_seconds = measurement.step_seconds * max(0.0, 1 - margin)
        if self.metric == "latency":
            reachable = least_seconds * 1000
            words = f"{reachable:.4g} ms/step at least (99 % sure), above the best, {self.best:.4g}"
            return words if reachable > self.best else None
        if measurement.samples_per_step >= self.best * least_seconds:
            return None
        reachable = measurement.samples_per_step / least_seconds
        return f"{reachable:.4g} samples/s at most (99 % sure), below the best, {self.best:.4g}"
