"""Chance that is the same for the same question: hashes as random numbers, and the noise of a run's steps."""

import hashlib
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

_NORMAL: Final = NormalDist()
_FILTER_LENGTH: Final = 24  # 0.5**24 is nothing
_STRAGGLER_SHARE: Final = 0.2  # of the variance of a step
_STRAGGLER_RATE: Final = 0.004
_WARM_UP_SECONDS: Final = 2.0  # a step that takes long adds no more of it than one that takes so long


def seed_of(*question: object) -> int:
    """A number of 64 bits that is a function of the question's representation."""
    return int.from_bytes(hashlib.blake2b(repr(question).encode(), digest_size=8).digest(), "big")


def uniform(*question: object) -> float:
    """A number in (0, 1) for a question."""
    return (seed_of(*question) + 0.5) / 2**64


def normal(*question: object) -> float:
    """A standard normal number for a question, cut at ±2.5."""
    return max(-2.5, min(2.5, _NORMAL.inv_cdf(uniform(*question))))


def step_factors(
    seed: int, steps: int, *, noise: float, correlation: float, seconds: float, gas: int
) -> NDArray[np.float64]:
    """What each step's time is multiplied with; shape (steps,). Without the warm-up the mean over many runs is 1.

    A first-order autoregressive process, rare stragglers beside it with an exponential delay, and a warm-up that decays
    over the first micro-steps. It takes some time and not some part of a step: in the grid of two CPU ranks that is
    recorded in `benchmarks/grids`, the first step is 0.10 s longer than later ones where those take 0.06 s, and 0.23 s
    longer where they take 0.45 s.

    Args:
        seed: of the launch.
        steps: how many.
        noise: coefficient of variation of a step, stragglers included.
        correlation: of neighbouring steps.
        seconds: that a step takes.
        gas: micro-steps in a step.
    """
    random = np.random.default_rng(seed)
    whites = random.standard_normal(steps + _FILTER_LENGTH)
    weights = correlation ** np.arange(_FILTER_LENGTH)
    smooth = np.convolve(whites, weights)[_FILTER_LENGTH : _FILTER_LENGTH + steps]
    smooth *= np.sqrt((1 - correlation**2) * (1 - _STRAGGLER_SHARE)) * noise
    delay = noise * np.sqrt(_STRAGGLER_SHARE / (2 * _STRAGGLER_RATE))
    stragglers = (random.random(steps) < _STRAGGLER_RATE) * random.exponential(delay, steps)
    factors: NDArray[np.float64] = np.maximum(1 + smooth + stragglers - _STRAGGLER_RATE * delay, 0.3)
    first, decay = random.uniform(0.3, 2.0), random.uniform(0.8, 3.0)
    ends = int(random.integers(3, 13))
    each = first / (1 + seconds / gas / _WARM_UP_SECONDS) * np.exp(-np.arange(ends) / decay)  # of a micro-step's time
    warm_up = np.add.reduceat(each, np.arange(0, ends, gas))[:steps] / gas
    factors[: len(warm_up)] += warm_up
    return factors
