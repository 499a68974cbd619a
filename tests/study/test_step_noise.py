"""The noise of steps: what all runs say of it together, and when a run counts by its own."""

import numpy as np
import pytest
from scipy.special import fdtr

from dsopt.study.step_noise import StepNoise, _f_probability, mean_deviation, pooled

USUAL = StepNoise(deviation=0.02, correlation=0.3, steps=30)


def test_nothing_known_is_some_noise() -> None:
    found = pooled([])
    assert (found.deviation, found.steps) == (0.04, 0)


def test_many_runs_outweigh_what_was_assumed() -> None:
    found = pooled([USUAL] * 20)
    assert found.deviation == pytest.approx(0.02, rel=0.05)
    assert found.correlation == pytest.approx(0.3, abs=0.03)
    assert found.steps == 600


def test_a_short_run_counts_by_the_noise_of_all() -> None:
    """Its own steps happen to agree within a tenth of that: three steps may."""
    lucky = StepNoise(deviation=0.006, correlation=0.0, steps=4)
    everything = pooled([USUAL] * 10)
    assert mean_deviation(lucky, everything) == pytest.approx(everything.of_mean(4))


@pytest.mark.parametrize("deviation", [0.1, 0.002])
def test_a_run_that_differs_by_more_than_chance_counts_by_its_own(deviation: float) -> None:
    odd = StepNoise(deviation=deviation, correlation=0.3, steps=40)
    everything = pooled([USUAL] * 20)
    assert mean_deviation(odd, everything) == pytest.approx(
        deviation / 0.02 * StepNoise(deviation=0.02, correlation=everything.correlation, steps=40).of_mean(40)
    )


@pytest.mark.parametrize("freedom", [3.0, 8.0, 40.0])
@pytest.mark.parametrize("other", [6.0, 30.0, 300.0])
def test_the_probability_is_that_of_the_f_distribution(freedom: float, other: float) -> None:
    ratios = np.array([0.1, 0.5, 1.0, 2.0, 4.0, 8.0])
    found = [_f_probability(ratio, freedom, other) for ratio in ratios]
    assert found == pytest.approx(list(fdtr(freedom, other, ratios)), abs=0.006)
