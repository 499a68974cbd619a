"""What one run has shown is not tried again at other sizes."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dsopt.experiment.outcome import FailedReason
from dsopt.search.crashes import common_crashes
from dsopt.search.history import History, Observation
from dsopt.search.plan import next_step
from dsopt.search.ruled_out import ruled_out
from dsopt.search.steps import CloseStage, Explore, RunReference
from dsopt.search.tuners.model_based import ranked
from dsopt.study.space import Candidate
from tests.made_up import facts, history, observation, spec
from tests.runs import engine

KNOBS = (("zero_optimization.overlap_comm", True),)


def at(stage: int, micro_batch: int, gas: int = 1, knobs: tuple[tuple[str, bool], ...] = ()) -> Candidate:
    return Candidate(stage=stage, micro_batch=micro_batch, gas=gas, knobs=knobs)


def test_what_deepspeed_refuses_of_a_stage_and_its_settings_is_refused_at_every_size() -> None:
    refused = observation(at(2, 8, knobs=KNOBS), reason="unsupported")
    out = ruled_out(spec(), history(refused, baseline=facts()), facts())
    assert not out.allow(at(2, 4, knobs=KNOBS))
    assert out.allow(at(2, 8)) and out.allow(at(3, 8, knobs=KNOBS))


def test_after_an_end_that_came_too_early_half_as_many_samples_are_tried() -> None:
    """A script that goes through its data once does fewer steps with larger batches."""
    early = observation(at(1, 64, gas=2), state="failed", reason="no_metrics")
    out = ruled_out(spec(), history(early, baseline=facts()), facts())
    large = facts(micro_batch=90)
    assert ruled_out(spec(), history(early, baseline=large), large).allow(at(2, 90))  # as large as what ran
    assert out.allow(at(1, 64)) and out.allow(at(0, 16, gas=4))
    assert not out.allow(at(0, 65)) and not out.allow(at(1, 33, gas=2))
    alone = replace(history(early), reference=[])  # the own run was not measured
    assert ruled_out(spec(), alone, facts()).allow(at(1, 64, gas=2))


OWN = {"zero_optimization": {"stage": 2, "allgather_partitions": False}}


def crashed(
    candidate: Candidate, message: str = "ValueError: sample larger than population", reason: FailedReason = "crash"
) -> Observation:
    return observation(candidate, state="failed", reason=reason, message=message)


def left_out(*seen: Observation, of: Candidate) -> bool:
    return any(crash.meets(of) for crash in common_crashes(spec(OWN), history(*seen, baseline=facts(micro_batch=4))))


def test_crashes_that_say_the_same_leave_out_larger_sizes_as_an_oom_does() -> None:
    """A data set that is too small, an assertion on the batch: whatever the stage."""
    three = [crashed(at(stage, size), f"ValueError: {size} of 8") for stage, size in ((0, 64), (1, 48), (2, 64))]
    assert not left_out(*three[:2], of=at(0, 64))
    assert left_out(*three, of=at(3, 14)) and not left_out(*three, of=at(3, 13))  # half-way from 4 to 48
    ran = observation(at(0, 80), 100.0, facts=facts(micro_batch=80))
    assert not left_out(*three, ran, of=at(3, 64))  # it was not the size
    assert not left_out(*three[:2], crashed(at(2, 64), "RuntimeError: another"), of=at(0, 64))
    [crash] = common_crashes(spec(), history(*three, baseline=facts(micro_batch=4)))
    assert str(crash) == "with a micro-batch above 13 runs end so: ValueError: 64 of 8"


def test_crashes_of_one_stage_or_setting_leave_out_that() -> None:
    of_stage = [crashed(at(3, size)) for size in (4, 2, 1)]
    assert left_out(*of_stage, of=at(3, 64)) and not left_out(*of_stage, of=at(2, 4))
    with_knob = [crashed(at(stage, 4, knobs=KNOBS)) for stage in (0, 2, 3)]
    assert left_out(*with_knob, of=at(1, 4, knobs=KNOBS)) and not left_out(*with_knob, of=at(2, 4))


def test_crashes_at_stages_where_nothing_ran_say_nothing_of_others() -> None:
    seen = [crashed(at(stage, 8)) for stage in (1, 2, 1)]
    assert not left_out(*seen, of=at(0, 64)) and not left_out(*seen, of=at(3, 64))
    assert left_out(*seen, of=at(2, 64)) and not left_out(*seen, of=at(2, 4))
    [crash] = common_crashes(spec(), history(*seen, baseline=facts(micro_batch=4)))
    assert str(crash).startswith("with a micro-batch above 5, ZeRO 1 or 2 runs end so: ")


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ("<A object at 0x7f3a5c0012e0> is gone", "<A object at 0x7f11bb> is gone", True),
        ("cannot open /tmp/tmpab_x/f", "cannot open /tmp/tmp93kq/g", True),
        ("job 5f0c7c1e-8a8b-4c2e-9a50-0c6a4a4f3f10 ended", "job 77aa7c1e-8a8b-4c2e-9a50-0c6a4a4f3f1b ended", True),
        ("no feedback", "no feed", False),
        ("deadbeef", "defaced", False),
    ],
)
def test_messages_that_differ_in_what_varies_say_the_same(one: str, other: str, are_alike: bool) -> None:
    seen = [crashed(at(3, 4), one), crashed(at(3, 2), other), crashed(at(3, 1), one)]
    assert left_out(*seen, of=at(3, 4)) is are_alike


def test_what_your_own_run_has_is_not_what_makes_runs_crash() -> None:
    own = (("zero_optimization.allgather_partitions", False),)
    assert not left_out(*(crashed(at(stage, 4, knobs=own)) for stage in (0, 2, 3)), of=at(2, 4, knobs=own))


def test_crashes_of_offload_leave_out_offload_alone() -> None:
    """It allows larger sizes, which are not what crashes."""
    cpu = (("zero_optimization.offload_optimizer.device", "cpu"),)
    none = (("zero_optimization.offload_optimizer.device", "none"),)
    seen = [crashed(at(stage, size, knobs=cpu)) for stage, size in ((1, 64), (2, 64), (3, 96))]
    assert left_out(*seen, of=at(1, 64, knobs=cpu))
    assert not left_out(*seen, of=at(1, 64, knobs=none)) and not left_out(*seen, of=at(1, 64))
    assert not left_out(*(crashed(at(stage, 4, knobs=none)) for stage in (0, 2, 3)), of=at(2, 4, knobs=none))


def test_crashes_on_a_node_where_nothing_ran_say_nothing_of_candidates() -> None:
    """It may lack a mount, or a package."""
    on_bad = [replace(crashed(at(0, size)), ran_on=("bad",)) for size in (8, 12, 16)]
    assert not left_out(*on_bad, of=at(0, 64))
    assert left_out(*on_bad, observation(at(0, 6), 100.0, facts=facts(micro_batch=6), ran_on=("bad",)), of=at(0, 64))


def test_a_stage_that_crashes_of_others_leave_empty_says_so() -> None:
    study = spec({"train_micro_batch_size_per_gpu": [4, 64], "zero_optimization": {"stage": [0, 1]}})
    seen = [crashed(at(0, 64, gas=gas)) for gas in (1, 2, 4)]
    own = observation(None, 80.0, facts=facts(micro_batch=4, zero_stage=0))
    small = [observation(at(stage, 4, gas=gas), 90.0, facts=facts(micro_batch=4, gas=gas, zero_stage=stage))
             for stage in (0, 1) for gas in (1, 2, 4)]  # fmt: skip
    known = History(reference=[own], stages={0: seen + small[:3], 1: []}, verdicts={0: "explored"})
    while not isinstance(step := next_step(study, known), CloseStage):
        assert isinstance(step, Explore)
        assert all(candidate.micro_batch == 4 for candidate in step.candidates)
        chosen = step.candidates[0]
        ran = observation(chosen, 90.0, facts=facts(micro_batch=4, gas=chosen.gas, zero_stage=1))
        known = replace(known, stages={0: known.stages[0], 1: [*known.stages[1], ran]}, learnt={})
    assert step.verdict.endswith("; with a micro-batch above 16 runs end so: ValueError: sample larger than population")


def test_a_script_that_fails_above_a_size_costs_few_runs() -> None:
    """It raises above 8; there is memory for hundreds."""
    stages, verdicts = searched([0, 1], 4, lambda candidate: candidate.micro_batch > 8)
    crashes = [o for seen in stages.values() for o in seen if o.reason == "crash"]
    assert len(crashes) <= 8
    assert max(o.candidate.micro_batch for seen in stages.values() for o in seen if o.value and o.candidate) == 8
    assert any("runs end so: ValueError: sample larger than population" in verdict for verdict in verdicts.values())


@pytest.mark.parametrize("reason", ["crash", "timeout"])
def test_a_script_that_fails_at_other_stages_than_its_own_is_tuned_at_that(reason: FailedReason) -> None:
    """Such as one that reads gradients, which ZeRO gives away. Larger sizes are blamed in vain for a while."""
    stages, verdicts = searched([0, 1, 2, 3], 1, lambda candidate: candidate.stage > 0, reason)
    failed = [o for seen in stages.values() for o in seen if o.reason == reason]
    assert len(failed) <= 10
    assert max(o.candidate.micro_batch for o in stages[0] if o.value and o.candidate) > 8
    assert "runs end so" not in verdicts[0]
    for stage in (1, 2, 3):
        assert verdicts[stage].startswith("nothing ran: ValueError: sample larger than population")


@pytest.mark.parametrize(
    ("fails", "best"),
    [
        (lambda candidate: candidate.micro_batch * 2**candidate.stage > 32, 32),
        (lambda candidate: candidate.micro_batch > (8 if candidate.stage == 3 else 32), 24),
        (lambda candidate: candidate.micro_batch > 16 or candidate.stage == 3, 16),
        (lambda candidate: candidate.micro_batch > 8 or (candidate.stage, candidate.micro_batch) == (2, 8), 8),
    ],
    ids=["less at higher stages", "less at one stage", "a size or a stage", "a size, and once by chance"],
)
def test_runs_that_end_alike_for_several_reasons_are_few(fails: Callable[[Candidate], bool], best: int) -> None:
    """All that hang say the same, for whatever reason."""
    stages, _ = searched([0, 1, 2, 3], 4, fails, "timeout")
    assert len([o for seen in stages.values() for o in seen if o.reason == "timeout"]) <= 20
    assert max(o.candidate.micro_batch for seen in stages.values() for o in seen if o.value and o.candidate) >= best


def searched(
    zero: list[int], own: int, fails: Callable[[Candidate], bool], reason: FailedReason = "crash"
) -> tuple[dict[int, list[Observation]], dict[int, str]]:
    """A search to its end from ZeRO 0, with a micro-batch of its own, and why each stage was closed."""
    study = spec({"train_micro_batch_size_per_gpu": own, "zero_optimization": {"stage": zero}})
    reference = [observation(None, 2 * own / (0.02 + 0.02 * own), facts=facts(micro_batch=own, zero_stage=0))]
    stages: dict[int, list[Observation]] = {stage: [] for stage in zero}
    verdicts: dict[int, str] = {}
    while len(verdicts) < len(zero):
        step = next_step(study, History(reference=reference, stages=stages, verdicts=verdicts))
        if isinstance(step, CloseStage):
            verdicts[step.stage] = step.verdict
            continue
        assert isinstance(step, Explore | RunReference)
        chosen = (
            ranked(step.candidates, step.forecast)[0] if isinstance(step, Explore) else step.candidate or at(0, own)
        )
        run = observation(chosen, 2 * chosen.micro_batch / (0.02 + 0.02 * chosen.micro_batch), facts=facts(
            micro_batch=chosen.micro_batch, gas=chosen.gas, zero_stage=chosen.stage))  # fmt: skip
        if isinstance(step, RunReference):
            reference.append(replace(run, name=step.name, round=step.round, candidate=step.candidate))
        else:
            stages[chosen.stage].append(crashed(chosen, reason=reason) if fails(chosen) else run)
    return stages, verdicts


def test_settings_that_the_script_sets_itself_stay_as_the_user_has_them() -> None:
    """A candidate with another value would be called faster by chance: the engine never had it."""
    study = spec({"zero_optimization": {"stage": 1, "overlap_comm": [False, True]}})
    told = engine(own_settings='{"zero_optimization.overlap_comm": false}')
    seen = observation(at(1, 8, knobs=KNOBS), reason="fixed_setting", engine=told)
    out = ruled_out(study, history(seen, baseline=facts(zero_stage=1)), facts(zero_stage=1))
    assert not out.allow(at(1, 4, knobs=KNOBS))
    assert out.allow(at(1, 4, knobs=(("zero_optimization.overlap_comm", False),)))
    assert out.allow(at(1, 4))
