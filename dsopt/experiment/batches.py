"""What the steps of a run were fed: how many forward passes, and of how many rows."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from dsopt.experiment.measure import is_drifting
from dsopt.protocol.events import Step

_FEWEST: Final = 3  # steps that show what is usual
_USUAL_SHARE: Final = 0.5
_FEWEST_OF_A_MEAN: Final = 10  # steps
SAME: Final = 0.02  # all elements: batches of other samples hardly differ by less
_STALL: Final = 3.0  # times as long as later steps
_FEWEST_SHAPES: Final = 3
_TREND: Final = 0.15  # of the mean
_CLEAR: Final = math.log(2)


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


def elements_stay(steps: Sequence[Step], before: float, ratio: float, *, may_grow_otherwise: bool) -> bool:
    """Whether the elements that steps are fed stay at what they were before, although there are other samples.

    They must grow at least by the root of the ratio, as far as chance lets tell: the closer that is to 1, the surer it
    has to be.

    Args:
        steps: with the elements of each known.
        before: the mean of the elements of a step then.
        ratio: of the samples of a step, now and then.
        may_grow_otherwise: whether any growth will do, as of masks beside batches whose rows are the length.
    """
    fed = [step.elements for step in steps]
    if len(fed) < _FEWEST_OF_A_MEAN:
        return False
    mean = statistics.fmean(fed)
    wanted, grown = math.log(ratio), math.log(mean / before)
    error = statistics.stdev(fed) / mean * math.sqrt(2 / len(fed))  # of both means
    if wanted < 0:
        wanted, grown = -wanted, -grown
    if may_grow_otherwise:
        return grown < SAME + 2 * error
    return grown + error * (2 if wanted >= _CLEAR else 4) < wanted / 2


def growth(steps: Sequence[Step]) -> float:
    """How many times as many elements the samples of the last third have as those of the first; 1 if that is chance.

    Data in an order of length, or a script that makes its samples longer as it goes, show it.
    """
    lengths = np.array([step.elements / step.rows for step in steps if step.rows and step.elements])
    if not is_drifting(lengths, _TREND):
        return 1.0
    third = len(lengths) // 3
    return float(lengths[-third:].mean() / lengths[:third].mean())


def _mean(counts: Sequence[int]) -> float:
    return sum(counts) / len(counts) if counts and all(counts) else 0.0


def unlike_others(steps: Sequence[Step]) -> frozenset[int]:
    """Indices of steps that were fed less than most, such as the last ones of an epoch."""
    passes, rows = usual_passes(steps), usual_rows(steps)
    return frozenset(index for index, step in enumerate(steps) if step.passes < passes or step.rows < rows)


def without_compilation(steps: Sequence[Step]) -> Mapping[int, float]:
    """What the first steps of batches of a shape would take, where such take far longer than when it comes again.

    Something is compiled for each shape: a whole training has next to no such steps. That needs several shapes that
    came again after others, most of which show it; a file that is read for each of several such batches in a row is
    read again. Of a shape that came once, the others tell what it takes.

    Returns:
        Seconds by index; empty if nothing shows it.
    """
    by_shape: dict[tuple[int, int, int], list[int]] = {}
    for index, step in enumerate(steps):
        if step.elements:
            by_shape.setdefault((step.passes, step.rows, step.elements), []).append(index)
    shape_of = {index: shape for shape, indices in by_shape.items() for index in indices}
    usual: dict[tuple[int, int, int], float] = {}
    for shape, indices in by_shape.items():
        again = [_took(steps[index]) for index in indices[1:] if shape_of.get(index - 1) != shape]
        if again:
            usual[shape] = statistics.median(again)
    stalled = {by_shape[shape][0]: took for shape, took in usual.items() if _stalls(steps[by_shape[shape][0]], took)}
    if len(stalled) < max(_FEWEST_SHAPES, len(usual) / 2):
        return {}
    # least squares, also where all batches have as many elements, of other rows
    (slope, base), *_ = np.linalg.lstsq([[shape[-1], 1] for shape in usual], [*usual.values()], rcond=None)
    for shape in by_shape.keys() - usual.keys():
        first, took = by_shape[shape][0], max(float(base + slope * shape[-1]), min(usual.values()))
        if _stalls(steps[first], took):
            stalled[first] = took
    return stalled


def _stalls(step: Step, usual: float) -> bool:
    return _took(step) > _STALL * usual


def _took(step: Step) -> float:
    return step.seconds - step.evaluation_seconds


def gain_of_full_steps(steps: Sequence[Step], seconds: Sequence[float], which: Sequence[int]) -> float:
    """By how much steps with as many rows as most have more of them a second than all; 0 if that is not known.

    Args:
        steps: of a run.
        seconds: how long each took.
        which: indices of those that count, without what is left out for another reason.
    """
    short = unlike_others(steps)
    full = [index for index in which if index not in short]
    if not full or len(full) == len(which) or not all(steps[index].rows for index in which):
        return 0.0
    rates = [sum(steps[i].rows for i in those) / sum(seconds[i] for i in those) for those in (full, which)]
    return max(0.0, rates[0] / rates[1] - 1)


def _usual(counts: Sequence[int]) -> int:
    if len(counts) < _FEWEST:
        return 0
    [(count, often)] = Counter(counts).most_common(1)
    return count if often >= _USUAL_SHARE * len(counts) else -1
