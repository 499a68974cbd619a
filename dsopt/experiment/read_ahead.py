"""Steps on input that was read ahead: training was not slowed down by reading, and will be once that is used up."""

from typing import Final

from dsopt.experiment.seen import Seen

_KEEPS_UP: Final = 0.05  # of the steps; what waits may shrink by so many
_EMPTY: Final = 0.1  # of what waited at first


def read_ahead(seen: Seen) -> int:
    """The first steps, if they were fed with what was read while the script began, and reading cannot keep up.

    Whether it keeps up is seen where a script takes its input from queues, as from the workers of a data loader: if
    not, ever less waits there. Where a run ends before it is used up, this tells how long it would have lasted.
    """
    waiting = [step.waiting for step in seen.steps]
    if not waiting:
        return 0
    first, least, further = waiting[0], min(waiting), len(waiting) - 1
    used_up = first - waiting[-1]
    if used_up <= _KEEPS_UP * further:
        return 0
    if least <= _EMPTY * first:
        return 1 + waiting.index(least)
    return 1 + -(-first * further // used_up)
