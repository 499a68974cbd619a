"""How many times as large one thing is as another, from pairs that were measured in turn."""

import math
import statistics
from collections.abc import Sequence

from scipy import stats


def ratio_of(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """The geometric mean of the pairs' ratios, and the ends of its 95 % interval (Student's t)."""
    logs = [math.log(one / other) for one, other in pairs]
    mean = statistics.mean(logs)
    half = float(stats.t.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)
