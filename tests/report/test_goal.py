"""How a result reads by its metric."""

from dataclasses import replace

import pytest

from dsopt.report.goal import baseline_text, times_text, training_speed
from dsopt.search.history import History
from dsopt.search.standing import Comparison
from dsopt.study.space import Candidate
from tests.made_up import facts, history, observation, spec

BEST = Candidate(stage=1, micro_batch=8, gas=1)


def known(seconds: float) -> History:
    """The user's own has 2 times 1 sample in 0.1 s, the best 2 times 8 in so long; both ran twice."""
    runs = history(
        observation(BEST, 100.0, facts=facts(zero_stage=1, micro_batch=8)), baseline=facts(zero_stage=1, micro_batch=1)
    )
    own = [replace(run, step_seconds=0.1) for run in runs.reference]
    best = [replace(run, step_seconds=seconds) for run in runs.stages[1]]
    return replace(runs, reference=[*own, *(replace(run, round=1) for run in own + best)], stages={1: best})


def test_only_more_samples_a_second_are_faster() -> None:
    assert times_text("throughput", 1.256, "yours") == "1.26 times as fast as yours"
    assert times_text("throughput_per_gpu", 1.256, "yours") == "1.26 times as good as yours in throughput of a GPU"
    assert baseline_text("throughput", 1.2, (0.9, 1.4)).endswith("it may be no faster than yours.")
    assert baseline_text("step", 1.2, None) == "1.20 times as good as the baseline in time of the optimizer's step."


def result(speedup: float, best: str = BEST.name) -> Comparison:
    return Comparison(best=best, value=1.0, baseline=1.0, speedup=speedup, interval=None, runs=4)


@pytest.mark.parametrize(
    ("metric", "speedup"), [("latency", 0.1 / 1.6), ("throughput_per_gpu", 0.5), ("FLOPS", 0.5), ("step", 3.0)]
)
def test_a_best_that_trains_more_slowly_is_warned_of(metric: str, speedup: float) -> None:
    """It was called so many times as fast."""
    speed = training_speed(spec(metric=metric), known(1.6), result(speedup))
    assert speed is not None
    assert (speed.own, speed.best, speed.is_slower) == (pytest.approx(20), pytest.approx(10), True)
    [said] = speed.warnings()
    assert "10 samples/s, your configuration 20: the same samples take 2 times as long" in said
    assert f"'metric: {metric}'" in said


def test_what_differs_between_nodes_makes_nothing_slower() -> None:
    """The result knows of it: by single runs, the best seems slower."""
    speed = training_speed(spec(metric="throughput_per_gpu"), known(0.9), result(1.1))
    assert speed is not None
    assert speed.best == pytest.approx(22)


def test_one_that_is_hardly_slower_or_is_the_users_own_is_not_warned_of() -> None:
    speed = training_speed(spec(metric="step"), known(0.805), result(1.2))
    assert speed is not None and not speed.warnings()
    assert training_speed(spec(metric="latency"), known(0.4), result(1.0, "baseline")) is None
    assert training_speed(spec(), known(1.6), result(0.5)) is None
