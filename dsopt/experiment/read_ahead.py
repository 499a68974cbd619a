"""Steps on input that was read ahead: training was not slowed down by reading, and will be once that is used up."""

from statistics import median
from typing import Final

from dsopt.experiment.seen import Seen

_KEEPS_UP: Final = 0.05  # of the steps; what waits may shrink by so many
_EMPTY: Final = 0.1  # of what waited at first
_FEWEST: Final = 6  # steps
_FIRST: Final = 3  # steps; the very first may take more, to fill what lies between, or what several steps need


def read_ahead(seen: Seen) -> int:
    """The first steps, if they were fed with what was read while the script began, and reading cannot keep up.

    Whether it keeps up is seen where a script takes its input from queues, as from the workers of a data loader: if
    not, ever less waits there, until hardly anything does. What only settles, or ends with the data, is none of that;
    nor is what gets nothing more, since all was read before.
    Where a run ends before it is used up, this tells how long it would have lasted.
    """
    waiting = [step.waiting for step in seen.steps]
    third = len(waiting) // 3
    first = max(waiting[: max(_FIRST, third)], default=0)
    if len(waiting) < _FEWEST or not first:
        return 0
    steady = median(waiting[len(waiting) // 2 :])
    if steady <= _EMPTY * first:
        return 1 + next(index for index, left in enumerate(waiting) if left <= steady)
    middle, last = median(waiting[third : 2 * third]), median(waiting[-third:])
    if middle - last >= len(waiting) - 2 * third:
        return 0
    if first <= len(waiting) / 2 or min(first - middle, middle - last) <= _KEEPS_UP * third:
        return 0
    return 1 + -(-first * (len(waiting) - 1) // max(1, first - waiting[-1]))
