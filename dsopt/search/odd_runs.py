"""Launches that something disturbed: a cold cache, other work on the machine.

Of three or more launches of one configuration on the same nodes, one that lies far below two others that agree tells
little of it: its own variance grows until it hardly counts, as with Student's t. One that lies far above two others is
none: what disturbs makes launches slow, and may have met both. It is one only where three agree. Of two, nobody knows
which is the odd one. It still tells that launches may differ by so much, also those of configurations that were
launched once; but not those of one whose own launches agree, but for an odd one.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.study.launch_noise import USUAL

Array = NDArray[np.float64]

_FAR: Final = 5.0  # standard deviations
_LAUNCHES: Final = 4 * USUAL  # what launches may well differ by, as a standard deviation of logarithms
_FEWEST: Final = 3


def with_oddness(scores: Sequence[float], variances: Sequence[float], ran_on: Sequence[tuple[str, ...]]) -> Array:
    """The variances of the scores of one configuration's runs, `(n,)`: larger than given for those that are odd."""
    found, score = np.array(variances, dtype=float), np.array(scores, dtype=float)
    for nodes in dict.fromkeys(ran_on) if len(score) >= _FEWEST else ():
        here = [index for index, one in enumerate(ran_on) if one == nodes]
        alike = _alike(score[here], found[here])
        if len(here) >= _FEWEST and alike.any():
            off = score[here] - score[here][alike].mean()
            is_odd = _are_far(off, found[here]) & ((off < 0) | (alike.sum() >= _FEWEST))
            found[here] += np.where(is_odd, off**2, 0.0)
    return found


def stands_alone(scores: Sequence[float], variances: Sequence[float], ran_on: Sequence[tuple[str, ...]]) -> bool:
    """Whether the fastest of three runs on the same nodes is far above the others, which agree."""
    if len(scores) != _FEWEST or len(set(ran_on)) > 1:
        return False
    alike = _alike(np.array(scores), np.array(variances))
    return bool(alike.any()) and not alike[int(np.argmax(scores))]


def _alike(scores: Array, variances: Array) -> NDArray[np.bool_]:
    """Which runs agree with the fastest that agrees with any other; none if none does."""
    for index in np.argsort(-scores):
        alike: NDArray[np.bool_] = ~_are_far(scores - scores[index], variances + variances[index])
        if alike.sum() > 1:
            return alike
    return np.zeros(len(scores), dtype=bool)


def differ_oddly(scores: Sequence[float], variances: Sequence[float]) -> bool:
    """Whether runs of one configuration on the same nodes differ by more than launches do."""
    best = int(np.argmax(scores))
    off, spread = np.array(scores) - scores[best], np.array(variances) + variances[best]
    return bool(_are_far(off, spread).any())


def without_odd(scores: Sequence[float], variances: Sequence[float], ran_on: Sequence[tuple[str, ...]]) -> list[int]:
    """The indices of the runs that are no odd ones."""
    widened = with_oddness(scores, variances, ran_on)
    return [index for index, variance in enumerate(variances) if widened[index] == variance]


def agreeing(launches: float, scores: Sequence[float]) -> float:
    """By how much launches of a configuration differ whose own agree, where all others together say `launches`."""
    return min(launches, max(_LAUNCHES, float(np.std(scores, ddof=1))))


def _are_far(off: Array, variances: Array) -> NDArray[np.bool_]:
    far: NDArray[np.bool_] = off**2 > _FAR**2 * (variances + _LAUNCHES**2)
    return far
