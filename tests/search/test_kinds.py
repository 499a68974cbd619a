"""A flag of the script that recomputes activations: what runs with it tell of those without it, and what not."""

from dataclasses import replace

import numpy as np
import pytest

from dsopt.search import plan, steps
from dsopt.search.facts import ModelFacts
from dsopt.search.forecast import Forecast, Outlook
from dsopt.search.grid import Grid
from dsopt.search.history import History
from dsopt.search.kinds import Kinds
from dsopt.search.memory import MemoryModel
from dsopt.study.space import Candidate, Setting
from dsopt.study.spec import StudySpec
from tests.made_up import GIB, facts, history, observation, spec

FLAG = "--gradient_checkpointing"
ON: Setting = ((FLAG, ""),)
OFF: Setting = ((FLAG, None),)


def study(own: Setting) -> StudySpec:
    content = spec().model_dump(exclude_unset=True)
    command = f"{content['command']} {FLAG}" if own == ON else content["command"]
    return StudySpec.model_validate({**content, "command": command, "search": {"args": {FLAG: [None, ""]}}})


def at(stage: int, micro_batch: int, knobs: Setting) -> Candidate:
    return Candidate(stage=stage, micro_batch=micro_batch, gas=1, knobs=knobs)


def known(**changes: int) -> ModelFacts:
    return facts(activation_bytes=GIB, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("own", "other"), [(OFF, ON), (ON, OFF)])
def test_a_kind_is_where_a_setting_differs_from_the_run_that_facts_are_from(own: Setting, other: Setting) -> None:
    kinds = Kinds(study(own), history(baseline=known()))
    assert kinds.of(()) == kinds.of(own) == ()
    assert kinds.of(other) == other
    profile = replace(observation(at(3, 1, other), 1.0, facts=known()), name="profile", trial=-1)
    of_profile = Kinds(study(own), History(reference=[profile], stages={1: []}))
    assert of_profile.of(other) == ()
    assert of_profile.of(()) == of_profile.of(own) == own


def outlook(own: Setting, *candidates: Candidate) -> Outlook:
    told = history(baseline=known(micro_batch=4), value=100.0)
    return Forecast(study(own), known(micro_batch=4), told).of(candidates)


def test_the_users_own_value_is_as_fast_as_the_users_own_run_and_the_other_is_not_known() -> None:
    """A flag that the command has counted as absent: its other value was believed to be as fast, and its own not."""
    for own, other in ((OFF, ON), (ON, OFF)):
        seen = outlook(own, at(0, 5, own), at(0, 5, other))
        assert seen.deviation[0] < 0.1 < seen.deviation[1]
        faster = seen.score[1] - seen.score[0]
        assert faster == pytest.approx(0.2 if other == OFF else -0.2, abs=0.05)


def test_the_users_own_value_is_as_sure_to_fit_as_without_the_flag() -> None:
    own = known(micro_batch=8, peak_memory_bytes=4 * GIB)
    told = history(baseline=own)
    sizes = (8, 24, 40)
    expected = MemoryModel(spec(), own, told).predict(Grid.of([at(0, size, ()) for size in sizes]))
    for value in (ON, OFF):
        found = MemoryModel(study(value), own, told).predict(Grid.of([at(0, size, value) for size in sizes]))
        assert np.array(found) == pytest.approx(np.array(expected))


def test_recomputing_is_expected_to_save_activations_and_the_contrary_to_take_several_times_as_much() -> None:
    own = known(micro_batch=8, peak_memory_bytes=4 * GIB)
    for value, other in ((OFF, ON), (ON, OFF)):
        model = MemoryModel(study(value), own, history(baseline=own))
        same, changed = (model.estimate(at(0, 64, knobs)) for knobs in (value, other))
        assert changed < same - 4 * GIB if other == ON else changed > 2 * same


def test_an_oom_of_what_keeps_activations_forbids_nothing_of_what_recomputes_them() -> None:
    """It made every size of both kinds above half the way look out of reach, and the study ended with less."""
    own = known(micro_batch=1)
    told = history(observation(at(3, 2, OFF)), baseline=own, value=100.0)
    offered: dict[Setting, set[int]] = {ON: set(), OFF: set()}
    for stage in range(4):
        others = {other: "" for other in range(4) if other != stage}
        step = plan.next_step(study(OFF), replace(told, verdicts=others))
        for candidate in step.candidates if isinstance(step, steps.Explore) else ():
            offered[candidate.knobs].add(candidate.micro_batch)
    assert max(offered[OFF], default=0) <= 2
    assert max(offered[ON]) > 2


def test_an_oom_that_nobody_expected_of_a_kind_that_never_ran_makes_that_kind_uncertain_and_no_stage() -> None:
    own = known(micro_batch=8, peak_memory_bytes=4 * GIB)
    asked = Grid.of([at(0, 12, OFF), at(0, 8, ON)])
    before = MemoryModel(study(OFF), own, history(baseline=own)).predict(asked)[1]
    after = MemoryModel(study(OFF), own, history(observation(at(0, 12, ON)), baseline=own)).predict(asked)[1]
    assert after[0] == pytest.approx(before[0], rel=0.1)
    assert after[1] > 2 * before[1]
