"""Dimensions beyond DeepSpeed's own: offload, script flags, other keys, resources, accumulation."""

import pytest

from dsopt.search import plan, steps
from dsopt.search.baseline_twin import is_baseline
from dsopt.search.memory import MemoryModel
from dsopt.search.tuners import tuner_named
from dsopt.search.tuners.choice import Choice
from dsopt.study.candidate_run import candidate_command, run_config
from dsopt.study.ds_config import candidate_config
from dsopt.study.space import NUM_GPUS, Candidate, Setting, stage_space
from tests.machines import Machine
from tests.made_up import GIB, facts, history, observation, sequential, spec

DEVICE = "zero_optimization.offload_optimizer.device"
PIN = "zero_optimization.offload_optimizer.pin_memory"
RATIO = "zero_optimization.offload_optimizer.ratio"
OFFLOAD = {
    "offload_optimizer": {"device": ["none", "cpu", "nvme"], "pin_memory": [True, False], "ratio": [0.5, 1.0],
                          "nvme_path": "/nvme"},
    "offload_param": {"device": ["none", "cpu"]},
}  # fmt: skip


def test_offload_is_a_dimension_where_the_stage_has_it() -> None:
    spaces = {stage: stage_space(stage, fast=True, user_zero=OFFLOAD) for stage in range(4)}
    assert spaces[0].knobs == {}
    assert spaces[1].knobs == {DEVICE: ("none", "cpu"), PIN: (True, False)}
    assert spaces[2].knobs == spaces[1].knobs
    param = "zero_optimization.offload_param.device"
    assert spaces[3].knobs == {
        DEVICE: ("none", "cpu", "nvme"), PIN: (True, False), RATIO: (0.5, 1.0), param: ("none", "cpu")
    }  # fmt: skip


def test_settings_that_differ_in_nothing_stand_once() -> None:
    """Without offload a pinned buffer changes nothing: 1 + 2 settings at ZeRO 2."""
    settings = [dict(setting) for setting in stage_space(2, fast=True, user_zero=OFFLOAD).settings()]
    assert settings == [
        {DEVICE: "none", PIN: True},
        {DEVICE: "cpu", PIN: True},
        {DEVICE: "cpu", PIN: False},
    ]


def test_a_section_that_offloads_nothing_is_left_out() -> None:
    config = {"zero_optimization": {"stage": [2], **OFFLOAD}}
    none, cpu, unpinned = stage_space(2, fast=True, user_zero=OFFLOAD).candidates([4], [1])
    assert candidate_config(config, none)["zero_optimization"] == {"stage": 2}
    assert candidate_config(config, unpinned)["zero_optimization"] == {
        "stage": 2,
        "offload_optimizer": {"device": "cpu", "pin_memory": False, "nvme_path": "/nvme"},
    }
    assert (none.name, cpu.name) == ("z2_oonone_oopmT_gas1_tmbspg4", "z2_oocpu_oopmT_gas1_tmbspg4")


def test_the_measured_disk_is_in_the_configuration_that_offloads_to_it() -> None:
    study = spec({"zero_optimization": {"stage": 3, **OFFLOAD}})
    aio = {"block_size": 1048576}
    nvme = Candidate(stage=3, micro_batch=1, gas=1, knobs=((DEVICE, "nvme"),))
    cpu = Candidate(stage=3, micro_batch=1, gas=1, knobs=((DEVICE, "cpu"),))
    assert run_config(study, nvme, aio)["aio"] == aio
    assert "aio" not in run_config(study, cpu, aio)
    own = spec({"aio": {"queue_depth": 1}, "zero_optimization": {"stage": 3, **OFFLOAD}})
    assert run_config(own, nvme, aio)["aio"] == {"queue_depth": 1}


@pytest.mark.parametrize(
    ("own", "search", "knobs", "total"),
    [
        ({"train_batch_size": 4, "gradient_accumulation_steps": 2}, {}, (), 8 * 3 * 2),
        ({"train_batch_size": 4, "gradient_accumulation_steps": 2}, {}, ((NUM_GPUS, 1),), 8 * 3),
        ({"gradient_accumulation_steps": 2}, {}, (), None),
        ({"train_batch_size": 4, "gradient_accumulation_steps": 1}, {}, (), None),  # of a pipeline without mp_size
        ({"train_batch_size": 4, "gradient_accumulation_steps": [2, 4]}, {}, (), 8 * 3 * 2),
        ({"train_batch_size": 4, "gradient_accumulation_steps": 2}, {"args": {"--stages": [1, 2]}}, (), None),
        ({"train_batch_size": 4}, {}, (), None),  # as DeepSpeed derives one, it does all
        ({"train_batch_size": "auto", "gradient_accumulation_steps": 2}, {}, (), None),
        (
            {"train_batch_size": 4, "gradient_accumulation_steps": 2},
            {"ds_config": {"sequence_parallel_size": [1, 2]}}, (), None,
        ),
    ],
)  # fmt: skip
def test_a_script_may_read_its_whole_batch(own: dict, search: dict, knobs: Setting, total: int | None) -> None:
    """Each candidate failed with `KeyError: 'train_batch_size'`, which the user's own configuration has."""
    study = spec(own, search)
    candidate = Candidate(stage=1, micro_batch=8, gas=3, knobs=knobs)
    assert run_config(study, candidate).get("train_batch_size") == total
    assert run_config(study, None).get("train_batch_size") == own.get("train_batch_size")


def test_script_flags_and_other_keys_are_dimensions_with_names() -> None:
    study = spec(
        search={
            "args": {"gradient_checkpointing": [False, True], "--attn": ["eager", "a/b", "a b"]},
            "ds_config": {"activation_checkpointing": {"partition_activations": [None, True]}},
        }
    )
    candidates = study.space(1).candidates([8], [1])
    assert len({c.name for c in candidates}) == len(candidates) == 12
    assert candidates[0].name == "z1_gcF_aeager_acpanone_gas1_tmbspg8"
    last = candidates[-1]
    assert str(candidate_command(study, last)) == (
        "deepspeed --num_gpus 2 t.py --deepspeed_config c.json --gradient_checkpointing --attn 'a b'"
    )
    assert candidate_config(study.ds_config, last)["activation_checkpointing"] == {"partition_activations": True}
    assert candidate_config(study.ds_config, candidates[0])["activation_checkpointing"] == {}


def test_keys_with_the_same_initials_are_told_apart() -> None:
    knobs = (("zero_optimization.allgather_bucket_size", 5), ("aio.block_size", 6), ("--reduce_scatter", ""))
    assert Candidate(stage=1, micro_batch=1, gas=1, knobs=knobs).name == (
        "z1_allgather_bucket_size5_aio.block_size6_rsT_gas1_tmbspg1"
    )


@pytest.mark.parametrize(("fast", "hidden", "count"), [(True, 64, 1), (False, None, 18), (False, 64, 96)])
def test_zero_3_has_defaults_that_depend_on_the_hidden_size(fast: bool, hidden: int | None, count: int) -> None:
    space = stage_space(3, fast=fast, user_zero={}, hidden_size=hidden)
    settings = list(space.settings())
    assert len(settings) == count
    if hidden and not fast:
        first = dict(settings[0])
        assert first["zero_optimization.reduce_bucket_size"] == 64 * 64
        assert first["zero_optimization.stage3_prefetch_bucket_size"] == int(0.9 * 64 * 64)
        assert first["zero_optimization.stage3_param_persistence_threshold"] == 640


def test_auto_is_left_to_hugging_face_and_dropped_where_it_fills_nothing_in() -> None:
    own = {
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto",
        "zero_optimization": {"stage": "all", "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"},
    }  # fmt: skip
    at_2 = candidate_config(own, Candidate(stage=2, micro_batch=8, gas=1))
    at_3 = candidate_config(own, Candidate(stage=3, micro_batch=8, gas=1))
    assert at_2["zero_optimization"] == {"stage": 2, "reduce_bucket_size": "auto"}
    assert at_3["zero_optimization"]["stage3_prefetch_bucket_size"] == "auto"
    assert at_2["gradient_clipping"] == "auto"
    assert "train_batch_size" not in at_2


def names_tried(machine: Machine, stage: int) -> set[str]:
    return {o.name for o in machine.stages[stage]}


def test_accumulations_are_a_dimension_within_the_largest_batch() -> None:
    """Of micro-batches 1, 2, 4 and accumulations 1, 4 on two ranks, those with a batch of at most 16."""
    study = sequential(
        {"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": [1, 2, 4],
         "gradient_accumulation_steps": [1, 4]},
        max_train_batch_size=16,
    )  # fmt: skip
    machine = Machine(study, lambda candidate: 1.0).run()
    sizes = [(1, 1), (1, 2), (1, 4), (4, 1), (4, 2)]
    assert names_tried(machine, 1) == {f"z1_gas{gas}_tmbspg{size}" for gas, size in sizes}


def test_each_group_of_settings_has_a_range_of_its_own() -> None:
    """With checkpointing four times as many samples fit, and it is only then that the best is reached."""

    def checkpoints(candidate: Candidate | None) -> bool:
        return candidate is not None and dict(candidate.knobs).get("--gc") == ""

    def truth(candidate: Candidate | None) -> float | str:
        size = candidate.micro_batch if candidate else 1
        if size > (64 if checkpoints(candidate) else 16):
            return "oom"
        return 100.0 * size / (size + 30) * (0.9 if checkpoints(candidate) else 1.0)

    def memory(candidate: Candidate) -> int:
        return int((4 + candidate.micro_batch * (0.19 if checkpoints(candidate) else 0.75)) * GIB)

    study = sequential({"zero_optimization": {"stage": 1}}, search={"args": {"gc": [False, True]}})
    machine = Machine(study, truth, memory)
    machine.run()
    best = machine.history.best(1)
    assert best is not None
    assert best.candidate is not None
    assert checkpoints(best.candidate)
    assert best.candidate.micro_batch >= 56
    assert len(machine.stages[1]) < 20


def test_offload_lets_a_stage_run_that_does_not_fit_without_it() -> None:
    """2^30 parameters need 10.5 GiB a rank at ZeRO 1 without offload, 4 GiB with it; the device has 8."""
    study = sequential({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": ["none", "cpu"]}}})

    def truth(candidate: Candidate | None) -> float | str:
        return (
            10.0
            if (candidate and dict(candidate.knobs).get(DEVICE) == "cpu") or (candidate and candidate.stage == 3)
            else "oom"
        )

    machine = Machine(study, truth, memory=lambda candidate: 5 * GIB)
    machine.shape = {
        "num_params": GIB, "trainable_params": GIB, "device_memory_bytes": 8 * GIB, "host_memory_bytes": 64 * GIB,
    }  # fmt: skip
    machine.run()
    measured = [o for o in machine.stages[1] if o.value is not None]
    assert measured
    assert all(dict(o.candidate.knobs)[DEVICE] == "cpu" for o in measured if o.candidate)


def test_offload_that_the_host_cannot_hold_is_refused() -> None:
    study = spec({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})
    small = facts(num_params=GIB, trainable_params=GIB, host_memory_bytes=8 * GIB)
    large = facts(num_params=GIB, trainable_params=GIB, host_memory_bytes=64 * GIB)
    candidate = Candidate(stage=2, micro_batch=1, gas=1)
    reason = MemoryModel(study, small, history(baseline=small)).why_not(candidate)
    assert reason == "would need about 18.00 GiB of host memory for offloaded states; a node has 7.20 GiB"
    assert MemoryModel(study, large, history(baseline=large)).why_not(candidate) is None


def test_resources_change_what_a_rank_holds() -> None:
    study = spec(num_gpus=[2, 8])
    known = facts(num_params=GIB, trainable_params=GIB, peak_memory_bytes=20 * GIB, device_memory_bytes=32 * GIB)
    model = MemoryModel(study, known, history(baseline=known))
    on_2, on_8 = (
        model.estimate(Candidate(stage=3, micro_batch=1, gas=1, knobs=(("num_gpus", number),))) for number in (2, 8)
    )
    assert on_2 - on_8 == pytest.approx(16 * GIB * (1 / 2 - 1 / 8), rel=0.15)
    names = [c.name for c in study.space(0).candidates([1], [1])]
    assert names == ["z0_ng2_gas1_tmbspg1", "z0_ng8_gas1_tmbspg1"]


@pytest.mark.parametrize(
    ("knobs", "is_own"),
    [
        ((("--gc", None),), True),
        ((("--gc", ""),), False),
        ((("num_gpus", 2),), True),
        ((("num_gpus", 4),), False),
        ((("zero_optimization.overlap_comm", True),), True),
        ((("zero_optimization.overlap_comm", False),), False),
    ],
)
def test_the_baseline_is_known_under_another_name(knobs: tuple, is_own: bool) -> None:
    study = spec({"zero_optimization": {"stage": 0, "overlap_comm": True}}, num_gpus=[2, 4])
    machine = Machine(study, lambda candidate: 1.0)
    step = plan.next_step(study, machine.history)
    assert isinstance(step, steps.RunReference)
    machine.reference.append(machine.observe("baseline", 0, None, "range"))
    candidate = Candidate(stage=0, micro_batch=1, gas=1, knobs=knobs)
    assert is_baseline(study, machine.history, candidate) == is_own


def test_the_first_value_of_each_list_is_the_baselines() -> None:
    zero = {"overlap_comm": [True, False], "reduce_bucket_size": [1_000_000, 5_000_000]}
    study = spec({"zero_optimization": {"stage": [1, 2], **zero}})
    known = history(baseline=facts(zero_stage=1))
    [own] = [one for one in study.space(1).candidates([1], [1]) if is_baseline(study, known, one)]
    assert own.config_values == {
        "zero_optimization.overlap_comm": True,
        "zero_optimization.reduce_bucket_size": 1_000_000,
    }


@pytest.mark.parametrize("sampler", ["tpe", "gp", "auto", "cmaes"])
def test_optunas_samplers_find_the_best_of_the_same_candidates(sampler: str) -> None:
    """A smooth peak among 72 candidates of ZeRO 2: half of them are tried, and the best quarter is among them."""
    space = stage_space(2, fast=False, user_zero={"reduce_scatter": True, "contiguous_gradients": True})
    candidates = space.candidates([1, 2, 4, 8], gases=[1])
    truth = {
        c: 1.0 / (1 + abs(c.micro_batch - 4) + sum(1 for _, v in c.knobs if v in (False, 10**9))) for c in candidates
    }
    seen = []
    for trial in range(len(candidates) // 2):
        left = [c for c in candidates if c not in {o.candidate for o in seen}]
        ordered = tuner_named(sampler)(Choice(candidates=left, observations=seen, maximize=True, trial=trial))
        assert sorted(ordered) == sorted(left)
        chosen = ordered[0]
        out_of_memory = chosen.micro_batch == 8
        seen.append(observation(chosen, None if out_of_memory else truth[chosen]))
    best = max(value for c, value in truth.items() if c.micro_batch != 8)
    assert max(o.value for o in seen if o.value is not None) >= 0.5 * best
    again = Choice(candidates=candidates[:5], observations=seen, maximize=True, trial=1)
    assert tuner_named(sampler)(again) == tuner_named(sampler)(again)
