"""The standard normal distribution, from SciPy, whose import takes long: who only looks at results does without it."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def ndtr(x: Any) -> NDArray[np.float64]:  # noqa: ANN401 - a number, or an array of any shape
    """The probability of at most `x`, in the shape of `x`."""
    from scipy.special import ndtr as probability

    found: NDArray[np.float64] = probability(x)
    return found


def log_ndtr(x: Any) -> NDArray[np.float64]:  # noqa: ANN401 - a number, or an array of any shape
    """Its logarithm, also where it is almost 0."""
    from scipy.special import log_ndtr as log_probability

    found: NDArray[np.float64] = log_probability(x)
    return found


def ndtri(probability: Any) -> NDArray[np.float64]:  # noqa: ANN401 - a number, or an array of any shape
    """The number below which a standard normal one lies with this probability."""
    from scipy.special import ndtri as quantile

    found: NDArray[np.float64] = quantile(probability)
    return found


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Expected improvement over the best so far (Jones, Schonlau and Welch, 1998).

    Args:
        mean: the prediction for n points, larger is better, shape `(n,)`.
        deviation: standard deviation of each, above 0, shape `(n,)`.
        best: so far.
    """
    above = (mean - best) / deviation
    gain: Array = deviation * (above * ndtr(above) + np.exp(-0.5 * above**2) / math.sqrt(2 * math.pi))
    return gain
