"""Measurements: intervals that hold what they promise, warm-up found, drift named."""

import numpy as np
import pytest

from dsopt.experiment.measure import half_width, measure, warmup_steps

PRECISION = 0.02


def correlated(generator: np.random.Generator, n: int, mean: float, noise: float, phi: float) -> np.ndarray:
    """`n` step times with this mean, coefficient of variation and lag-one correlation."""
    values = np.empty(n)
    state = generator.normal()
    for index in range(n):
        values[index] = state
        state = phi * state + np.sqrt(1 - phi**2) * generator.normal()
    return mean * (1 + noise * values)


@pytest.mark.parametrize(("phi", "least"), [(0.0, 0.92), (0.3, 0.87), (0.6, 0.83)])
def test_the_interval_covers_the_true_mean_about_as_often_as_it_says(phi: float, least: float) -> None:
    """Correlated steps cost some coverage at 60 steps: batches are few. The bound is what the method reaches."""
    generator = np.random.default_rng(7)
    covered = 0
    for _ in range(1000):
        times = correlated(generator, 60, 0.2, 0.05, phi)
        covered += abs(times.mean() - 0.2) <= half_width(times)
    assert least <= covered / 1000 <= 0.975


def test_a_run_stopped_at_its_precision_is_that_precise() -> None:
    """The rule that ends a run looks again and again, which alone would stop on lucky streaks."""
    generator = np.random.default_rng(11)
    within = 0
    for _ in range(300):
        times = correlated(generator, 300, 0.1, 0.05, 0.2)
        for n in range(10, 301):
            measured = measure(times[:n], 8, PRECISION, min_warmup=3)
            if measured is not None and (measured.is_precise(PRECISION) or n == 300):
                within += abs(measured.step_seconds - 0.1) <= measured.half_width_seconds
                break
    assert within / 300 >= 0.80


def test_the_warm_up_of_a_recorded_run_is_left_out() -> None:
    """Step times in ms of a first run on the CPU; DeepSpeed's window, steps 3 to 5, lies inside its warm-up."""
    start = [404, 252, 211, 203, 200, 167, 152, 166]
    steady = [151, 149, 153, 150, 152, 148, 151, 150, 149, 152, 151, 150]
    times = np.array(start + steady) / 1000
    assert 5 <= warmup_steps(times) <= 8
    measured = measure(times, 8, PRECISION)
    assert measured is not None
    assert measured.step_seconds == pytest.approx(0.1507, rel=0.02)
    assert measured.is_precise(PRECISION)
    assert not measured.drifting


def test_steady_steps_lose_only_the_first() -> None:
    times = 0.1 + 0.001 * np.array([(7919 * i) % 13 - 6 for i in range(40)]) / 6
    assert warmup_steps(times) <= 10


def test_steps_that_become_slower_drift_and_are_never_precise() -> None:
    times = 0.1 * (1 + 0.005 * np.arange(60))
    measured = measure(times, 8, PRECISION)
    assert measured is not None
    assert measured.drifting
    assert not measured.is_precise(0.5)


def test_a_window_is_taken_as_given() -> None:
    times = [9.0, 9.0, 9.0, 0.1, 0.2, 0.3, 9.0]
    measured = measure(times, 6, PRECISION, window=(3, 5))
    assert measured is not None
    assert measured.step_seconds == pytest.approx(0.2)
    assert (measured.warmup_steps, measured.measured_steps) == (3, 3)
    assert measured.samples_per_second == pytest.approx(30)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_too_few_steps_support_nothing(steps: int) -> None:
    assert measure([0.1] * steps, 8, PRECISION) is None
