"""Measurements: intervals that hold what they promise, warm-up found, drift named."""

import numpy as np
import pytest

from benchmarks.coverage import Case, after, when_precise
from dsopt.experiment.measure import measure, warmup_steps

PRECISION = 0.02


@pytest.mark.parametrize(
    ("steps", "case", "least", "most"),
    [
        (10, Case(), 0.95, 1.0),  # of ten steps the correlation cannot be told, so the prior's is what counts
        (10, Case(correlation=0.6), 0.93, 0.99),
        (20, Case(correlation=0.5), 0.93, 0.99),
        (20, Case(correlation=0.3, stragglers=True), 0.93, 0.99),
        (60, Case(), 0.95, 0.99),
        (60, Case(noise=0.1, correlation=0.5), 0.92, 0.97),
        (60, Case(correlation=0.3, warm_up=True), 0.94, 0.99),
        (300, Case(), 0.93, 0.97),
        (300, Case(correlation=0.6), 0.92, 0.97),
    ],
)
def test_the_interval_holds_the_true_mean_about_as_often_as_it_says(
    steps: int, case: Case, least: float, most: float
) -> None:
    assert least <= after(case, steps, runs=600).share <= most


@pytest.mark.parametrize(
    ("case", "least", "most_steps"),
    [
        (Case(), 0.95, 20),
        (Case(correlation=0.3), 0.94, 22),
        (Case(correlation=0.5), 0.91, 24),
        (Case(stragglers=True), 0.95, 25),
        (Case(correlation=0.3, warm_up=True), 0.94, 30),
        (Case(noise=0.05, correlation=0.3), 0.92, 65),
    ],
)
def test_a_run_stopped_at_its_precision_is_that_precise(case: Case, least: float, most_steps: float) -> None:
    """The rule that ends a run looks again and again, which alone would stop on lucky streaks."""
    coverage = when_precise(case, runs=150)
    assert coverage.share >= least
    assert coverage.mean_steps <= most_steps


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
    assert warmup_steps(times) == 1


def test_an_early_straggler_is_no_warm_up() -> None:
    times = 0.1 + 0.001 * np.array([(7919 * i) % 13 - 6 for i in range(40)]) / 6
    times[12] = 0.2
    assert warmup_steps(times) == 1


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


def test_a_single_pause_is_left_out_and_told() -> None:
    times = [0.5] * 40
    times[20] = 30.0
    measurement = measure(times, samples_per_step=8, precision=0.02)
    assert measurement is not None
    assert measurement.step_seconds == pytest.approx(0.5)
    assert measurement.pause_seconds == 30.0
    assert not measurement.drifting


def test_pauses_that_come_again_count() -> None:
    times = [0.5] * 40
    times[20] = times[35] = 30.0
    measurement = measure(times, samples_per_step=8, precision=0.02)
    assert measurement is not None
    assert measurement.step_seconds > 1.5
    assert measurement.pause_seconds == 0


def test_a_few_steps_say_nothing_about_which_one_is_a_pause() -> None:
    measurement = measure([0.5, 0.5, 0.5, 9.0], samples_per_step=8, precision=0.02)
    assert measurement is not None
    assert measurement.pause_seconds == 0
