"""Steps on input that a script read while it began do not say how fast a training is whose input is slower."""

from dataclasses import replace

import pytest

from dsopt.experiment.judge import Moment
from dsopt.experiment.outcome import Measured
from dsopt.experiment.read_ahead import read_ahead
from dsopt.experiment.seen import Seen
from dsopt.protocol.events import Step
from dsopt.study.spec import MeasurementBudget
from tests.runs import engine, outcome_of, rules, step

FAST, SLOW = 0.1, 0.8


def run(steps: int, waiting: int, fed: float) -> list[Step]:
    """Steps of which the first find their input ready, while `fed` of what a fast step needs is read in it."""
    left, told = float(waiting), []
    for number in range(steps):
        seconds = FAST if left >= 1 else SLOW
        left = max(0.0, min(waiting, left - 1 + fed * seconds / FAST))
        told.append(replace(step(number, seconds), waiting=int(left)))
    return told


def measured(steps: int, waiting: int, fed: float, max_steps: int = 300) -> Measured:
    budget = rules(measurement=MeasurementBudget(max_steps=max_steps, max_seconds=1000.0))
    outcome = outcome_of(engine(), *run(steps, waiting, fed), moment=Moment(seconds=50.0), under=budget)
    assert isinstance(outcome, Measured)
    return outcome


def test_the_steps_that_find_input_ready_are_warm_up_where_reading_is_slower() -> None:
    outcome = measured(60, 20, fed=0.125)
    assert outcome.read_ahead == outcome.measurement.warmup_steps == 22
    assert outcome.measurement.step_seconds == pytest.approx(SLOW)


def test_a_run_that_ends_before_what_waits_is_used_up_says_so() -> None:
    outcome = measured(50, 64, fed=0.125, max_steps=50)
    assert outcome.measurement.step_seconds == pytest.approx(FAST)
    assert outcome.read_ahead == pytest.approx(72, abs=3)  # 64 of which each step uses up 0.875


def test_where_reading_keeps_up_all_steps_count() -> None:
    outcome = measured(20, 64, fed=1.0)
    assert (outcome.read_ahead, outcome.measurement.warmup_steps) == (0, 3)


@pytest.mark.parametrize(
    "waiting",
    [
        [8, 7, *[6] * 28],  # it settles
        [16, 14, *[12] * 60],
        [8, *[7] * 20, 7, 6, 5, 4, 3, 2, 1, 0],  # the epoch ends
        [8, 7, 2, 4, 0, *[6] * 25],
        [64, 60, 62, 64, 63] * 6,
        [300, *range(299, 240, -1)],  # all was read before the first step
        [64, 10],
        [],
    ],
)
def test_what_settles_or_ends_with_the_data_is_not_slow_input(waiting: list[int]) -> None:
    seen = Seen()
    for number, left in enumerate(waiting):
        seen.add(step(number, waiting=left))
    assert read_ahead(seen) == 0


def test_a_first_step_that_fills_what_lies_between_hides_nothing() -> None:
    """A thread makes batches of what another one reads: the first step waits for several of them."""
    waiting = [1190, *(4761 - 4 * number // 5 for number in range(61))]  # what is read makes up for a fifth
    seen = Seen()
    for number, left in enumerate(waiting):
        seen.add(replace(step(number, FAST), waiting=left))
    assert read_ahead(seen) > len(waiting)
