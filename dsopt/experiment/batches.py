"""What the steps of a run were fed: how many forward passes, and of how many rows."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from dsopt.protocol.events import Step

_FEWEST: Final = 3  # steps that show what is usual
_USUAL_SHARE: Final = 0.5


def usual_passes(steps: Sequence[Step]) -> int:
    """How many forward passes most steps had; 0 if that was not seen, and -1 if most differ."""
    return _usual([step.passes for step in steps])


def usual_rows(steps: Sequence[Step]) -> int:
    """How many rows most steps were fed; 0 if that was not seen, and -1 if most differ."""
    return _usual([step.rows for step in steps])


def mean_rows(steps: Sequence[Step]) -> float:
    """The mean of the rows that steps were fed; 0 if that was not seen in each."""
    return _mean([step.rows for step in steps])


def mean_elements(steps: Sequence[Step]) -> float:
    """The mean of the elements that steps were fed; 0 if that was not seen in each."""
    return _mean([step.elements for step in steps])


def _mean(counts: Sequence[int]) -> float:
    return sum(counts) / len(counts) if counts and all(counts) else 0.0


def unlike_others(steps: Sequence[Step]) -> frozenset[int]:
    """Indices of steps that were fed less than most, such as the last ones of an epoch."""
    passes, rows = usual_passes(steps), usual_rows(steps)
    return frozenset(index for index, step in enumerate(steps) if step.passes < passes or step.rows < rows)


def _usual(counts: Sequence[int]) -> int:
    if len(counts) < _FEWEST:
        return 0
    [(count, often)] = Counter(counts).most_common(1)
    return count if often >= _USUAL_SHARE * len(counts) else -1
