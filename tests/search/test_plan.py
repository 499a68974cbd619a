"""The plan, driven to its end against made-up machines: which runs it asks for, and why it stops."""

from collections import Counter
from dataclasses import replace

import pytest

from dsopt.search import plan, steps
from dsopt.search.finalists import finalists
from dsopt.search.history import History
from dsopt.search.pruners import runs_since_best
from dsopt.search.standing import compare
from dsopt.study.space import Candidate
from dsopt.study.spec import Confirmation, StudySpec
from tests.machines import Machine, saturating
from tests.made_up import GIB, confirming, facts, observation
from tests.made_up import sequential as spec


def test_baseline_then_stages_in_order_then_interleaved_confirmation() -> None:
    machine = Machine(confirming(spec()), saturating(best_stage=1), half_width=0.2).run()
    assert machine.reference[0].name == "baseline"
    assert machine.names(0)[:5] == [f"z0_gas1_tmbspg{m}" for m in (1, 2, 4, 8, 16)]
    assert machine.names(1)[0] == "z1_gas1_tmbspg16"  # where the stage before was best
    assert machine.verdicts[3] == "not explored: ZeRO 2 was no better than ZeRO 1"
    assert machine.stages[3] == []
    first, second, third = ([o.name for o in machine.reference if o.round == round_] for round_ in (1, 2, 3))
    # the finalists are as good as each other, and the baseline is out of it
    assert first[0] == "baseline"
    assert set(first[1:]) & {"z1_gas1_tmbspg16", "z1_gas1_tmbspg24", "z1_gas1_tmbspg32"}
    assert (second, third) == (first[:0:-1], first[1:])


@pytest.mark.parametrize(("hours", "rounds"), [(None, 1), (100_000, 3), (0.1, 1)])
def test_rounds_end_where_little_can_be_lost_or_less_than_they_take_of_the_training(hours, rounds) -> None:
    """Two finalists as good as each other: after a round less than half a per cent may be lost."""
    content = confirming(spec()).model_dump(exclude_unset=True)
    payback = {"stop_when": "payback", "training_hours": hours} if hours else {}
    machine = Machine(StudySpec.model_validate({**content, **payback}), saturating(best_stage=1), seconds=60.0)
    for stage in machine.spec.stages:
        machine.verdicts[stage] = "explored"
    machine.reference.append(machine.observe("baseline", 0, None, "range"))
    for size in (16, 32):
        candidate = Candidate(stage=1, micro_batch=size, gas=1)
        machine.stages[1].append(machine.observe(candidate.name, 0, candidate, "range"))
    machine.run()
    in_rounds = Counter(o.name for o in machine.reference if o.round and o.why is None)
    assert max(in_rounds.values()) == rounds


def test_all_stages_are_explored_while_each_is_better() -> None:
    machine = Machine(spec(), saturating(best_stage=3)).run()
    assert all(machine.verdicts[stage].startswith("explored") for stage in range(4))


def test_a_baseline_out_of_memory_leads_to_the_least_memory_profile() -> None:
    def truth(candidate: Candidate | None) -> float | str:
        return "oom" if candidate is None or candidate.stage < 3 else 10.0 * candidate.micro_batch**0.001

    machine = Machine(spec(), truth).run()
    assert [o.name for o in machine.reference[:2]] == ["baseline", "profile"]
    assert machine.message == ""
    assert {o.name for o in machine.reference if o.round} <= {o.name for o in machine.history.measured}
    assert compare(machine.spec, machine.history) is not None
    assert machine.verdicts[0].startswith("nothing ran")


@pytest.mark.parametrize("reason", ["no_metrics", "timeout", "machine"])
def test_a_baseline_that_cannot_be_measured_ends_the_study(reason: str) -> None:
    machine = Machine(spec(), lambda candidate: reason).run()
    assert machine.message == f"the baseline could not be measured: because of {reason}"
    assert len(machine.reference) == 1


def test_nothing_that_runs_ends_the_study_with_both_reasons() -> None:
    machine = Machine(spec(), lambda candidate: "crash").run()
    assert "neither your configuration nor the one with the least memory" in machine.message


def test_stages_that_cannot_fit_are_skipped_without_a_run() -> None:
    """1.5 · 2^30 parameters in mixed precision: 24 GiB of states at stage 0, 12 on each of two ranks at stage 3."""

    def truth(candidate: Candidate | None) -> float | str:
        return 10.0 if candidate is not None and candidate.stage == 3 else "oom"

    machine = Machine(spec(), truth, memory=lambda candidate: 13 * GIB + candidate.micro_batch * GIB // 64)
    machine.shape = {"num_params": 3 * GIB // 2, "trainable_params": 3 * GIB // 2}
    machine.run()
    assert machine.stages[0] == []
    assert machine.verdicts[0].startswith("skipped: would need about 2")
    assert "per device at micro-batch 1; a device has 16.00 GiB" in machine.verdicts[0]
    assert machine.verdicts[1] == "nothing ran: even micro-batch 1 ran out of memory"
    assert machine.verdicts[3] == "explored"


def test_the_memory_limit_is_met_without_running_into_it() -> None:
    """16 GiB of device, 3 GiB and 512 MiB a sample: 26 samples fit; no run is launched that does not."""

    def memory(candidate: Candidate) -> int:
        return 3 * GIB + candidate.micro_batch * GIB // 2

    def truth(candidate: Candidate | None) -> float | str:
        size = candidate.micro_batch if candidate else 1
        if candidate is not None and memory(candidate) > 16 * GIB:
            return "oom"
        return 100.0 * size / (size + 20)

    machine = Machine(spec({"zero_optimization": {"stage": 0}}), truth, memory).run()
    sizes = [o.candidate.micro_batch for o in machine.stages[0] if o.candidate]
    assert all(o.state == "measured" for o in machine.stages[0])
    assert 24 <= max(sizes) <= 26


def test_a_list_of_micro_batch_sizes_is_tried_exactly() -> None:
    machine = Machine(
        spec({"train_micro_batch_size_per_gpu": [1, 4, 16], "zero_optimization": {"stage": 1}}),
        saturating(1),
    ).run()
    assert machine.names(1) == [f"z1_gas1_tmbspg{m}" for m in (1, 4, 16)]


def test_the_batch_size_limit_holds() -> None:
    machine = Machine(spec(max_train_batch_size=12), saturating(0)).run()
    sizes = [o.candidate.micro_batch for o in machine.stages[0] if o.candidate]
    assert max(sizes) == 6


def test_patience_and_budget_end_a_stage() -> None:
    zero = {"zero_optimization": {"stage": 1}}
    patient = Machine(spec(zero, fast=False, tuner_early_stopping=4), saturating(1)).run()
    assert patient.verdicts[1] == "explored; stopped after 4 runs without a better one"
    budget = Machine(spec(zero, fast=False, tuner_num_trials=7, tuner_early_stopping=50), saturating(1)).run()
    assert len(budget.stages[1]) == 7
    assert "it has had its 7 runs (tuner_num_trials)" in budget.verdicts[1]


def test_the_knobs_of_a_stage_are_explored_at_the_selected_sizes() -> None:
    machine = Machine(
        spec({"zero_optimization": {"stage": 1}}, fast=False, tuner_early_stopping=99, num_tuning_micro_batch_sizes=1),
        saturating(1),
    ).run()
    explored = {o.name for o in machine.stages[1] if o.candidate and o.candidate.micro_batch == 16}
    assert len(explored) == 3


def test_latency_prefers_the_smallest() -> None:
    machine = Machine(
        spec(metric="latency"),
        lambda candidate: 10.0 * (candidate.micro_batch + candidate.stage if candidate else 1),
    ).run()
    result = compare(machine.spec, machine.history)
    assert result is not None
    assert result.best == "baseline"
    assert machine.names(0)[:2] == ["z0_gas1_tmbspg1", "z0_gas1_tmbspg2"]


def test_a_running_trial_is_waited_for_where_the_next_depends_on_it() -> None:
    machine = Machine(spec(), saturating(1))
    machine.reference.append(machine.observe("baseline", 0, None, "range"))
    first = plan.next_step(machine.spec, machine.history)
    assert isinstance(first, steps.Explore)
    begun = machine.refused(first.candidates[0], "predicted_oom", "range")
    machine.stages[0].append(replace(begun, state="running", reason=None))
    assert isinstance(plan.next_step(machine.spec, machine.history), steps.Wait)


def test_imported_figures_steer_and_leave_no_finalist_of_ours_out() -> None:
    """They are too good, by much: what may be best of them runs here, and none of them is a run."""
    study = confirming(
        spec({"zero_optimization": {"stage": [0]}}, num_tuning_micro_batch_sizes=1, max_train_batch_size=32)
    )
    machine = Machine(study, lambda c: 100.0 if c is None else 100.0 + c.micro_batch)
    for number, (size, value) in enumerate([(1, 300.0), (2, 330.0), (4, 340.0)]):
        candidate = Candidate(stage=0, micro_batch=size, gas=1)
        machine.stages[0].append(observation(candidate, value, trial=number, imported="/r"))
    machine.run()
    ours = [o for o in machine.stages[0] if o.imported is None]
    assert [o.candidate.micro_batch for o in ours if o.candidate] == [8]
    assert runs_since_best(machine.history, machine.stages[0]) == 1
    confirmed = {run.name for run in machine.reference if run.round}
    assert confirmed >= {"baseline", "z0_gas1_tmbspg8", "z0_gas1_tmbspg4"}
    assert not any(o.launched for o in machine.stages[0] if o.imported)


def test_what_was_imported_is_a_finalist_once_it_has_run_here() -> None:
    study = StudySpec.model_validate({**spec().model_dump(exclude_unset=True), "confirmation": {"finalists": 2}})
    here, imported = (Candidate(stage=0, micro_batch=size, gas=1) for size in (8, 4))
    own = observation(None, 40.0, facts=facts())
    before = History(reference=[own], stages={0: [observation(here, 79.0), observation(imported, 90.0, imported="/r")]})
    assert [o.candidate for o in finalists(study, before, Confirmation(finalists=2))] == [here]
    known = replace(
        before, reference=[own, observation(imported, 80.0, round=1, why="a run here gains 10 % on average")]
    )
    assert {o.candidate for o in finalists(study, known, Confirmation(finalists=2))} == {here, imported}
