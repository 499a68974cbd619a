"""What another launch is worth where the only one may have been disturbed.

Other work on the machine makes a launch slow, never fast. Of a configuration that was launched once, only what all
other runs let expect of it tells this from its being slow.
"""

import math
from typing import Final

import numpy as np

from dsopt.optuna.normal import expected_improvement, ndtr
from dsopt.search.posterior import Array

DISTURBED: Final = "it is far slower than all others let expect, and has had only one launch"  # why it runs again
_SHARE: Final = 0.03  # of launches
_MOST: Final = math.log(20)  # by how much, as a logarithm; any less is as likely


def worth_if_disturbed(scores: Array, noise: Array, expected: Array, variance: Array, best: float) -> Array:
    """What another launch of each of n configurations adds on average to the score of the best, `(n,)`.

    That is the probability that the first one was disturbed, times the expected improvement if it was.

    Args:
        scores, noise: of the launches, and the variance that undisturbed ones have, `(n,)`.
        expected, variance: of the true scores, by all other runs, `(n,)`.
        best: the score of the best.
    """
    off, deviation = expected - scores, np.sqrt(variance + noise)
    usual = (1 - _SHARE) * np.exp(-0.5 * (off / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))
    odd = _SHARE * (ndtr(off / deviation) - ndtr((off - _MOST) / deviation)) / _MOST
    # far from both, that is far above what is expected or even slower, both vanish
    chance = np.divide(odd, usual + odd, out=np.where(off > 0, 1.0, 0.0), where=usual + odd > 0)
    worth: Array = chance * expected_improvement(expected, np.sqrt(variance), best)
    return worth
