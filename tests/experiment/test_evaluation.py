"""Passes without gradients between steps count in all runs of a study or in none."""

import pytest

from dsopt.experiment.evaluation import step_seconds
from dsopt.experiment.outcome import Failed, Measured
from dsopt.experiment.rules import OwnSizes
from dsopt.protocol.events import Step
from dsopt.study.spec import MeasurementBudget
from tests.runs import engine, outcome_of, rules, step

OWN = OwnSizes(rows=0, micro_batch=8, gas=2)


def with_rollouts(every: int, count: int = 40) -> list[Step]:
    """Steps of 0.1 s; what precedes each `every`-th takes a second."""
    extra = [1.0 if number % every == 0 else 0.0 for number in range(count)]
    return [step(number, 0.1 + more, evaluation_seconds=more) for number, more in enumerate(extra)]


@pytest.mark.parametrize(
    ("is_evaluated", "every", "counts", "seconds"),
    [
        (False, 4, False, 0.1),  # the user's own run has none
        (False, 1, False, 0.1),  # the user's own run has none in most steps: its accumulation is smaller
        (False, 4, True, 0.35),
        (True, 1, False, 1.1),
        (True, 8, False, 0.225),  # the user's own run has one in each step: its accumulation is larger
        (None, 1, False, 1.1),
        (None, 4, False, 0.35),  # they take two thirds of the time
        (None, 30, False, 0.1),  # only one was seen
    ],
)
def test_they_count_in_all_runs_or_in_none(is_evaluated: bool | None, every: int, counts: bool, seconds: float) -> None:
    budget = MeasurementBudget(max_steps=40, count_evaluation=counts)
    under = rules(own=OWN, is_evaluated=is_evaluated, measurement=budget)
    outcome = outcome_of(engine(), *with_rollouts(every), under=under)
    assert isinstance(outcome, Measured)
    assert outcome.measurement.step_seconds == pytest.approx(seconds)
    assert outcome.measurement.pause_seconds == 0
    assert (outcome.evaluation_share > 0) is (seconds == 0.1)


def test_a_run_goes_on_until_they_have_come_again() -> None:
    steps = with_rollouts(30, count=100)
    assert outcome_of(engine(), *steps[:40], under=rules(is_evaluated=True, measurement=MeasurementBudget())) is None
    outcome = outcome_of(engine(), *steps[:70], under=rules(is_evaluated=True, measurement=MeasurementBudget()))
    assert isinstance(outcome, Measured)
    assert outcome.measurement.step_seconds == pytest.approx(0.1 + 1 / 30)


def test_the_users_own_run_waits_for_a_while_whether_they_come_again() -> None:
    under = rules(own=None, expected=None, measurement=MeasurementBudget())
    for every, needed in ((16, 33), (1000, 100)):
        steps = with_rollouts(every, count=110)
        assert outcome_of(engine(), *steps[: needed - 1], under=under) is None
        outcome = outcome_of(engine(), *steps[:needed], under=under)
        assert isinstance(outcome, Measured)
        assert outcome.is_evaluated is (every == 16)


def test_the_last_ones_are_for_as_many_steps_as_those_before() -> None:
    counted = step_seconds(with_rollouts(4, count=10), counts=True)
    assert counted == pytest.approx([0.35] * 10)
    assert step_seconds(with_rollouts(100, count=10), counts=True) == pytest.approx([0.2] * 10)


def test_what_a_run_does_before_its_first_step_is_not_left_out_of_training() -> None:
    outcome = outcome_of(engine(), *with_rollouts(100), under=rules(is_evaluated=False))
    assert isinstance(outcome, Measured)
    assert (outcome.evaluation_share, outcome.is_evaluated) == (0, False)


def test_a_run_that_has_seen_none_is_no_figure_where_they_are_part_of_training() -> None:
    steps = [step(number) for number in range(40)]
    assert step_seconds(steps, counts=True) == pytest.approx([0.1] * 40)
    outcome = outcome_of(engine(), *steps, under=rules(is_evaluated=True))
    assert isinstance(outcome, Failed)
    assert "this run ended before it did any" in outcome.message
