"""When the user's own configuration does not run: the least-memory profile, `model_info`, and why a study gives up."""

import optuna
import pytest

from dsopt.protocol.events import Engine
from dsopt.search.history import History
from dsopt.search.least_memory import profile_candidate
from dsopt.search.memory import MemoryModel
from dsopt.search.observing import observe, profile_attributes
from dsopt.search.plan import next_step
from dsopt.search.steps import Explore, RunReference
from dsopt.study.part import REFERENCE
from dsopt.study.space import ZERO, Candidate
from dsopt.study.spec import StudySpec
from tests.machines import Machine
from tests.made_up import GIB, facts, observation, sequential, spec

OFFLOADS = {
    "offload_optimizer": {"device": ["none", "cpu"], "pin_memory": [True, False]},
    "offload_param": {"device": ["none", "cpu", "nvme"], "nvme_path": "/n"},
}
CHECKPOINTING = {"args": {"--gradient_checkpointing": [None, ""]}}
BILLION = 10**9


def engine(**changes: object) -> Engine:
    """Of a model of a billion parameters in half precision on two devices of 24 GiB."""
    values = {
        "rank": 0, "world_size": 2, "num_params": BILLION, "trainable_params": BILLION, "device": "cuda",
        "device_memory_bytes": 24 * GIB, "zero_stage": 0, "micro_batch": 1, "gas": 1, "dtype": "fp16",
        "largest_layer_params": 10**7, "host_memory_bytes": 512 * GIB,
    }  # fmt: skip
    return Engine(**{**values, **changes})


@pytest.mark.parametrize(
    ("ds_config", "search", "autotuning", "name"),
    [
        ({}, {}, {}, "z3_gas1_tmbspg1"),
        ({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2}, {}, {}, "z3_gas2_tmbspg1"),
        ({"zero_optimization": {"stage": [0, 2]}}, {}, {}, "z2_gas1_tmbspg1"),
        ({"zero_optimization": {"stage": [3, 2], **OFFLOADS}}, {}, {}, "z3_oocpu_oopmF_opnvme_gas1_tmbspg1"),
        ({"zero_optimization": {"stage": [1, 2], **OFFLOADS}}, {}, {}, "z2_oocpu_oopmF_gas1_tmbspg1"),
        ({}, CHECKPOINTING, {}, "z3_gcT_gas1_tmbspg1"),
        ({}, {"args": {"--recompute": ["none", "full"]}}, {}, "z3_rfull_gas1_tmbspg1"),
        ({}, {"args": {"--max_seq_length": ["1024", "512"]}}, {}, "z3_msl512_gas1_tmbspg1"),
        ({}, {"args": {"--attn": ["eager", "flash"]}}, {}, "z3_aeager_gas1_tmbspg1"),
        ({}, {"args": {"--deepspeed_config_note": ["a", "b"]}}, {}, "z3_dcna_gas1_tmbspg1"),
        (
            {}, {"ds_config": {"fp16.enabled": [True, False], "bf16.enabled": [False, True]}}, {},
            "z3_feF_beT_gas1_tmbspg1",
        ),
        ({}, {"ds_config": {"activation_checkpointing.partition_activations": [False, True]}}, {},
         "z3_acpaT_gas1_tmbspg1"),
        ({}, {}, {"num_gpus": [2, 8, 4]}, "z3_ng8_gas1_tmbspg1"),
        ({}, {}, {"fast": False}, "z3_ocF_rsT_rbs5e+07_cgT_gas1_tmbspg1"),
    ],
)  # fmt: skip
def test_the_profile_has_the_most_frugal_value_of_every_dimension(
    ds_config: dict, search: dict, autotuning: dict, name: str
) -> None:
    assert profile_candidate(spec(ds_config, search, **autotuning)).name == name


def test_the_profile_has_the_users_own_value_where_none_is_known_to_be_frugal() -> None:
    content = spec({}, {"args": {"--attn": ["eager", "flash"]}}).model_dump(exclude_unset=True)
    typed = StudySpec.model_validate({**content, "command": content["command"] + " --attn flash"})
    assert dict(profile_candidate(typed).knobs) == {"--attn": "flash"}


def fits_when_frugal(candidate: Candidate | None) -> float | str:
    """On 24 GiB nothing runs without checkpointing and optimizer offload."""
    knobs = dict(candidate.knobs) if candidate else {}
    frugal = knobs.get("--gradient_checkpointing") == "" and knobs.get(f"{ZERO}offload_optimizer.device") == "cpu"
    return 10.0 + candidate.micro_batch if candidate and frugal else "oom"


@pytest.mark.parametrize("order", [spec, sequential])
def test_dimensions_let_a_study_go_on_that_runs_with_them_alone(order) -> None:
    """Two OOMs, of which the second was the documents' ZeRO 3 with micro-batch 1, were the end of it."""
    study = order({"zero_optimization": {"stage": [2, 3], **OFFLOADS}}, CHECKPOINTING, tuner_early_stopping=50)
    machine = Machine(study, fits_when_frugal, lambda candidate: (8 + candidate.micro_batch) * GIB)
    machine.shape = {"device_memory_bytes": 24 * GIB, "host_memory_bytes": 512 * GIB}
    machine.run()
    assert [(o.name, o.state) for o in machine.reference[:2]] == [("baseline", "infeasible"), ("profile", "measured")]
    assert machine.message == ""
    assert machine.history.measured


def test_what_the_profile_was_is_known_to_the_models() -> None:
    """Its peak is that of offloaded states, and what it left that of recomputed layers."""
    study = spec({"zero_optimization": {"stage": [2, 3], **OFFLOADS}}, CHECKPOINTING)
    least = profile_candidate(study)
    seen = facts(
        num_params=BILLION, trainable_params=BILLION, zero_stage=3, largest_layer_params=10**7,
        activation_bytes=GIB // 4, peak_memory_bytes=2 * GIB, device_memory_bytes=24 * GIB, host_memory_bytes=512 * GIB,
    )  # fmt: skip
    profile = observation(least, 10.0, name="profile", facts=seen)
    known = History(reference=[observation(None), profile], stages={2: [], 3: []})
    model = MemoryModel(study, seen, known)
    knobs = dict(least.knobs)
    plain = Candidate(
        stage=3, micro_batch=1, gas=1, knobs=tuple({**knobs, f"{ZERO}offload_optimizer.device": "none"}.items())
    )
    assert model.estimate(least) == pytest.approx(2 * GIB, rel=0.1)
    assert model.estimate(plain) - model.estimate(least) == pytest.approx(7 * BILLION, rel=0.2)
    greedy = Candidate(stage=3, micro_batch=1, gas=1, knobs=tuple({**knobs, "--gradient_checkpointing": None}.items()))
    assert model.largest_micro_batch(3, greedy.knobs, 0.97) < model.largest_micro_batch(3, least.knobs, 0.97) / 2


def test_the_trial_of_a_profile_says_what_it_was() -> None:
    least = profile_candidate(spec({"zero_optimization": OFFLOADS}, CHECKPOINTING))
    study = optuna.create_study()
    trial = study.ask()
    for key, value in {"candidate": "profile", "round": 0, **profile_attributes(least)}.items():
        trial.set_user_attr(key, value)
    seen = observe(study.trials[0], REFERENCE)
    assert (seen.name, seen.candidate) == ("profile", least)


def gives_up(study: StudySpec, told: Engine | None) -> str:
    machine = Machine(study, lambda candidate: "oom")
    machine.engine = told
    return machine.run().message


def test_giving_up_names_the_steps_that_are_not_allowed_and_what_each_saves() -> None:
    message, heading, *rungs = gives_up(spec({"zero_optimization": {"stage": 0}}), engine()).split("\n")
    assert message == (
        "neither your configuration nor the one with the least memory that the study allows (ZeRO 0, micro-batch 1) "
        "runs. Yours: because of oom Least memory: because of oom"
    )
    assert heading == "These need less memory on a GPU, but the study does not allow them:"
    # by the ZeRO paper on 2 ranks: 16Ψ; z1 with optimizer offload 4Ψ, z2 9Ψ, z3 8Ψ, with parameters offloaded 7Ψ
    saved = {rung.removeprefix("- ").partition(": saves ")[0]: rung.partition(": saves ")[2] for rung in rungs}
    billion_bytes = BILLION / GIB
    expected = {
        "ZeRO 2": 7 * billion_bytes,
        "offload_optimizer to cpu (at ZeRO 1)": 12 * billion_bytes,
        "ZeRO 3": 8 * billion_bytes,
        "offload_param to cpu (at ZeRO 3)": 8.96 * billion_bytes,
    }
    for name, size in expected.items():
        assert saved[name].startswith(f"{size:.2f} GiB of model states; "), saved[name]
    assert list(saved) == [
        "gradient checkpointing, which is not a dimension of this study",
        "ZeRO 2",
        "offload_optimizer to cpu (at ZeRO 1)",
        "ZeRO 3",
        "offload_param to cpu (at ZeRO 3)",
        "a shorter sequence",
        "NVMe (at ZeRO 3)",
    ]
    assert saved["ZeRO 3"].endswith('"zero_optimization": {"stage": [0, 3]}')


@pytest.mark.parametrize(("device", "is_said"), [("H200", True), ("cpu", False)])
def test_buckets_that_are_large_beside_the_model_are_named_on_a_gpu(device: str, is_said: bool) -> None:
    """On the CPU a process does not have them before they are written to."""
    small = engine(num_params=1_000_000, trainable_params=1_000_000, device=device, dtype="fp32")
    message = gives_up(spec({"zero_optimization": {"stage": 1}}), small)
    said = (
        "- smaller buckets for gradients: saves 1.68 GiB of buffers; "
        '"zero_optimization": {"reduce_bucket_size": [500000000, 50000000]}'
    )
    assert (said in message) is is_said, message
    own = {"zero_optimization": {"stage": 1, "reduce_bucket_size": [2e8, 5e7]}}
    assert "smaller buckets" not in gives_up(spec(own), small)


def test_giving_up_never_advises_what_saves_nothing() -> None:
    """One rank has nobody to share states with, and bf16 needs more for states than fp32 does."""
    alone = engine(world_size=1, dtype="fp32", largest_layer_params=BILLION)
    message = gives_up(spec({"zero_optimization": {"stage": 0}}), alone)
    assert "saves -" not in message
    assert "- ZeRO 2: " not in message
    assert "- ZeRO 3: " not in message
    assert "- offload_optimizer to cpu (at ZeRO 1): saves " in message


def test_giving_up_names_nothing_that_the_study_allows() -> None:
    ours = {"bf16.enabled": [True, False], f"{ZERO}reduce_bucket_size": [5e8, 5e7]}
    search = {"args": {**CHECKPOINTING["args"], "--seq_length": ["512"]}, "ds_config": ours}
    study = spec({"zero_optimization": {"stage": [2, 3], **OFFLOADS}}, search)
    assert "does not allow" not in gives_up(study, engine(dtype="fp32"))
    typed = StudySpec.model_validate(
        {**spec().model_dump(exclude_unset=True), "command": "deepspeed t.py --gradient_checkpointing True"}
    )
    assert "gradient checkpointing" not in gives_up(typed, engine())


def test_what_is_saved_is_unknown_until_the_model_is() -> None:
    message = gives_up(spec({"bf16": {"enabled": True}}), None)
    assert "- offload_param to cpu: saves unknown until the model is known: give autotuning.model_info; " in message
    assert "bf16 or fp16" not in message
    assert "- bf16 or fp16: saves half of the activations; " in gives_up(spec(), engine(dtype="fp32"))


def test_a_crash_names_no_ladder() -> None:
    message = Machine(spec(), lambda candidate: "crash").run().message
    assert "neither your configuration" in message
    assert "does not allow" not in message and "auto" not in message


def test_what_nothing_fills_in_is_named() -> None:
    study = spec({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "gradient_clipping": "auto"})
    message = Machine(study, lambda candidate: "crash").run().message
    assert 'has "auto" for optimizer.params.lr, gradient_clipping. The Hugging Face Trainer' in message


INFO = {"num_params": BILLION, "activation_mem_per_gpu": GIB // 4, "hidden_size": 2048, "num_layers": 24}


@pytest.mark.parametrize("order", [spec, sequential])
def test_model_info_takes_the_place_of_a_profile(order) -> None:
    """A billion parameters: 16 GB of states on each device at ZeRO 0, which has 12 GiB; 9 GB at ZeRO 2."""

    def truth(candidate: Candidate | None) -> float | str:
        return "oom" if candidate is None or candidate.stage < 2 else 10.0 * candidate.micro_batch**0.1

    machine = Machine(
        order({"fp16": {"enabled": True}}, model_info=INFO), truth, lambda c: 9 * GIB + c.micro_batch * GIB // 4
    )
    machine.engine = engine(device_memory_bytes=12 * GIB)
    machine.run()
    assert {o.name for o in machine.reference if o.round == 0} == {"baseline"}
    assert machine.message == ""
    assert not any(o.launched for o in machine.stages[0])
    assert machine.history.measured


@pytest.mark.parametrize(
    ("told", "device", "why"),
    [
        (None, "16GiB", None),
        (engine(), None, None),
        (None, None, "because no run has shown a GPU's memory; give memory_per_device"),
    ],
)
def test_a_profile_is_run_where_model_info_is_not_enough(
    told: Engine | None, device: str | None, why: str | None
) -> None:
    content = {**spec(model_info=INFO).model_dump(exclude_unset=True), "memory_per_device": device}
    study = StudySpec.model_validate(content)
    known = History(reference=[observation(None, engine=told)], stages={stage: [] for stage in range(4)})
    step = next_step(study, known)
    if why is None:
        assert isinstance(step, Explore)
    else:
        assert isinstance(step, RunReference)
        assert step.why == f"autotuning.model_info cannot replace it, {why}"


def test_a_study_that_nothing_of_runs_gives_up_with_model_info_too() -> None:
    message = gives_up(spec({"zero_optimization": {"stage": 3}}, model_info=INFO), engine())
    assert message.startswith("neither your configuration nor any candidate runs. Yours: because of oom Candidates: ")
    assert "- offload_optimizer to cpu: saves " in message
