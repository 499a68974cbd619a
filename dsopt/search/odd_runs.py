"""Launches that something disturbed: a cold cache, other work on the machine.

Of three or more launches of one configuration on the same nodes, one that lies far from the others tells little of it:
its own variance grows until it hardly counts, as with Student's t. Of two, nobody knows which is the odd one.
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


def with_oddness(scores: Sequence[float], variances: Sequence[float], ran_on: Sequence[tuple[str, ...]]) -> list[float]:
    """The variances of the scores of one configuration's runs, with what each has for being an odd one."""
    found = np.array(variances, dtype=float)
    for nodes in {*ran_on}:
        here = [index for index, one in enumerate(ran_on) if one == nodes]
        off = np.array(scores)[here] - np.median(np.array(scores)[here])
        if len(here) >= _FEWEST:
            found[here] += np.where(_are_far(off, found[here]), off**2, 0.0)
    return [float(each) for each in found]


def differ_oddly(scores: Sequence[float], variances: Sequence[float]) -> bool:
    """Whether runs of one configuration on the same nodes differ by more than launches do."""
    off = np.array(scores) - np.max(scores)
    return bool(_are_far(off, np.array(variances) + np.min(variances)).any())


def _are_far(off: Array, variances: Array) -> NDArray[np.bool_]:
    far: NDArray[np.bool_] = off**2 > _FAR**2 * (variances + _LAUNCHES**2)
    return far
