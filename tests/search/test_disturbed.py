"""A launch that something made slow, of a configuration that had no other: it may not end the search."""

from dataclasses import replace

import numpy as np
import pytest

from dsopt.search.disturbed import DISTURBED, worth_if_disturbed
from dsopt.search.forecast import Forecast
from dsopt.search.history import BASELINE
from dsopt.search.plan import next_step
from dsopt.search.standing import compare
from dsopt.search.steps import RunReference
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from tests.machines import Machine
from tests.made_up import GIB, facts, history, observation, spec

ONE = np.ones(1)


def worth(score: float, *, expected: float = 0.2, deviation: float = 0.1, best: float = 0.0) -> float:
    found = worth_if_disturbed(score * ONE, 1e-4 * ONE, expected * ONE, deviation**2 * ONE, best)
    return float(found[0])


def test_only_a_launch_far_below_what_is_expected_is_worth_another() -> None:
    assert worth(0.25) < worth(0.1) < 0.0025
    assert 0.1 < worth(-0.5) <= worth(-5.0) == pytest.approx(0.2, abs=0.02)  # also where nothing is as slow as that
    assert worth(9.0) == 0.0
    assert worth(-0.5, best=0.6) < 1e-4  # it could not win anyway
    assert worth(-0.5, deviation=0.5) < worth(-0.5, deviation=0.3) + 0.02


STUDY = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": [0, 1, 2, 3]}}


def speed(candidate: Candidate | None) -> float:
    """More than twice as fast with larger micro-batches; stages hardly differ."""
    stage, size, gas = (0, 4, 1) if candidate is None else (candidate.stage, candidate.micro_batch, candidate.gas)
    return 2 * size * gas / (gas * (0.01 + 0.001 * size) + 0.005 + 0.001 * stage)


def tuned(study: StudySpec, which: int, slower: float) -> Machine:
    """The study on a machine where one launch, by its number, is so much slower."""
    launches = 0

    def truth(candidate: Candidate | None) -> float:
        nonlocal launches
        launches += 1
        return float(speed(candidate) * (slower if launches == which else 1.0))

    own, told = Candidate(stage=0, micro_batch=4, gas=1), {"half_width": 0.002, "seconds": 60.0}
    return Machine(study, truth, lambda c: 2 * GIB + c.micro_batch * GIB // 4, own=own, **told).run()


def study_with(rounds: dict | None) -> StudySpec:
    content = spec(STUDY, max_train_batch_size=64).model_dump(exclude_unset=True)
    return StudySpec.model_validate({**content, **({"confirmation": rounds} if rounds else {})})


@pytest.mark.parametrize("slower", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("which", [2, 3])
@pytest.mark.parametrize("rounds", [None, {"finalists": 2, "rounds": 2}])
def test_one_slow_launch_does_not_end_the_search(rounds: dict | None, which: int, slower: float) -> None:
    """It said "keep your configuration, more than 99 % likely the fastest", where others were twice as fast."""
    machine = tuned(study_with(rounds), which, slower)
    result = compare(machine.spec, machine.history)
    assert result is not None and result.best != BASELINE
    [best] = {o.candidate for o in machine.history.everything if o.name == result.best and o.candidate is not None}
    assert speed(best) / max(map(speed, machine.offered)) > 0.85
    assert result.interval is None or result.interval[0] < speed(best) / speed(None) < result.interval[1]


def test_a_launch_that_was_stopped_as_too_slow_may_have_been_disturbed_too() -> None:
    """It is the best, but was never looked at again, because no run of it was measured."""
    at = Candidate(stage=1, micro_batch=16, gas=1)
    stopped = replace(observation(at, state="slow", reason="slow"), value_so_far=speed(at) / 3, half_width=0.02)
    before = history(stopped, baseline=facts(micro_batch=4), value=speed(None))
    study = spec(STUDY, max_train_batch_size=64)
    known = replace(before, reference=[replace(before.reference[0], half_width=0.002)])
    step = next_step(study, known)
    assert isinstance(step, RunReference) and (step.name, step.why) == (at.name, DISTURBED)
    again = observation(at, speed(at), name=at.name, round=1, why=DISTURBED, half_width=0.002)
    known = replace(known, reference=[*known.reference, again], learnt={})
    step = next_step(study, known)
    assert isinstance(step, RunReference) and (step.name, step.round) == (at.name, 2), "two contradict each other"
    known = replace(known, reference=[*known.reference, replace(again, round=2, why=step.why)], learnt={})
    assert known.best(1) == known.measured[0] == replace(again, candidate=at)
    result = compare(study, known)
    assert result is not None and result.best == at.name
    assert result.interval is not None and result.interval[0] < speed(at) / speed(None) < result.interval[1]


def test_where_nothing_is_disturbed_nothing_runs_again_for_that() -> None:
    machine = tuned(study_with(None), 0, 1.0)
    assert DISTURBED not in {o.why for o in machine.history.everything}


def test_a_run_that_goes_on_is_not_doubted() -> None:
    """Its figure is only believed. It was launched again, and the worker took that for somebody else's and ended."""
    study, sizes = spec(STUDY, max_train_batch_size=64), [Candidate(stage=1, micro_batch=m, gas=1) for m in (8, 16, 32)]
    ended = [observation(at, speed(at), half_width=0.002) for at in sizes[:2]]
    going = observation(sizes[2], state="running")
    known = history(*ended, going, baseline=facts(micro_batch=4), value=speed(None))
    forecast = Forecast(study, facts(micro_batch=4), known)
    assert sizes[2].name in {shown.name for shown in forecast.believed.shown}
    assert {shown.name for shown, _ in forecast.disturbed()} == {o.name for o in ended}


@pytest.mark.parametrize("rounds", [None, {"finalists": 1, "rounds": 1}])
@pytest.mark.parametrize("slower", [0.2, 0.5, 0.85])
def test_of_a_cold_first_launch_nothing_is_left_in_the_answer(rounds: dict | None, slower: float) -> None:
    """Yours was told 24 % too fast; with rounds, 3.22 times where 2.39 is true: there was no third launch."""
    machine = tuned(study_with(rounds), 1, slower)
    result = compare(machine.spec, machine.history)
    assert result is not None and result.interval is not None and result.baseline is not None
    [best] = {o.candidate for o in machine.history.everything if o.name == result.best and o.candidate is not None}
    assert result.baseline == pytest.approx(speed(None), rel=0.02)
    assert result.interval[0] < speed(best) / speed(None) < result.interval[1] < 1.2 * result.interval[0]
