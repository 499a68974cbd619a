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


def seed_of(*question: object) -> int:
    """A number of 64 bits that is a function of the question's representation."""
    return int.from_bytes(hashlib.blake2b(repr(question).encode(), digest_size=8).digest(), "big")


def uniform(*question: object) -> float:
    """A number in (0, 1) for a question."""
    return (seed_of(*question) + 0.5) / 2**64


def normal(*question: object) -> float:
    """A standard normal number for a question, cut at ±2.5."""
    return max(-2.5, min(2.5, _NORMAL.inv_cdf(uniform(*question))))


def step_factors(seed: int, steps: int, *, noise: float, correlation: float) -> NDArray[np.float64]:
    """What each step's time is multiplied with; shape (steps,). Without the warm-up the mean over many runs is 1.

    A first-order autoregressive process, rare stragglers beside it with an exponential delay, and a warm-up that decays
    over the first steps.

    Args:
        seed: of the launch.
        steps: how many.
        noise: coefficient of variation of a step, stragglers included.
        correlation: of neighbouring steps.
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
    warm_up = first * np.exp(-np.arange(min(steps, ends)) / decay)
    factors[: len(warm_up)] += warm_up
    return factors
