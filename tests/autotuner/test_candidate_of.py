"""Which candidate a run of DeepSpeed's autotuner is, and why another is none."""

import base64

import pytest

from dsopt.autotuner.candidate_of import ForeignRun, NotInSpace, candidate_of
from dsopt.study.command import LaunchCommand
from dsopt.study.ds_config import candidate_config
from dsopt.study.spec import StudySpec
from tests.made_up import spec

ENCODED = base64.urlsafe_b64encode(b'{"a": 1}').decode()


def run(
    stage: int = 0, *, args: str = "", script: str = "/elsewhere/t.py", num_gpus: int = 2, **config: object
) -> ForeignRun:
    zero = config.pop("zero", {})
    words = f"deepspeed --hostfile h --include localhost:0,1 {script} {args} --deepspeed_config {ENCODED}".split()
    ds_config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 1,
        "autotuning": {"enabled": True},
        "train_batch_size": 8,
        "zero_optimization": {"stage": stage, **zero},
        **config,
    }
    return ForeignRun(ds_config=ds_config, command=LaunchCommand.parse(words, "t"), num_gpus=num_gpus, num_nodes=1)


OFFLOAD = {"device": ["none", "cpu"], "pin_memory": [True, False]}
BUCKETS = {"reduce_bucket_size": 5e7, "allgather_bucket_size": 1e9}
STAGE_2 = {**BUCKETS, "overlap_comm": True, "reduce_scatter": False, "contiguous_gradients": True}


@pytest.mark.parametrize(
    ("study", "stage", "foreign", "name"),
    [
        (spec(), 0, run(), "z0_gas1_tmbspg4"),
        (spec(), 1, run(1), "z1_gas1_tmbspg4"),
        # what the templates of its full mode write out is DeepSpeed's default
        (spec(), 1, run(1, zero={"reduce_bucket_size": 5e8, "allgather_bucket_size": 5e8}), "z1_gas1_tmbspg4"),
        (spec(fast=False), 1, run(1, zero=BUCKETS), "z1_rbs5e+07_gas1_tmbspg4"),
        (spec(fast=False), 1, run(1), "z1_rbs5e+08_gas1_tmbspg4"),
        (spec(fast=False), 2, run(2), "z2_ocF_rsT_rbs5e+08_cgT_gas1_tmbspg4"),  # overlap_comm is on at ZeRO 3 alone
        (spec(fast=False), 3, run(3), "z3_ocT_rsT_rbs5e+08_cgT_gas1_tmbspg4"),
        (
            spec(fast=False), 2, run(2, zero={**STAGE_2, "allgather_partitions": False}),
            "z2_ocT_rsF_rbs5e+07_cgT_gas1_tmbspg4",
        ),
        (spec({"gradient_accumulation_steps": [1, 2]}), 0, run(gradient_accumulation_steps=2), "z0_gas2_tmbspg4"),
        (spec({"bf16": {"enabled": True}}), 0, run(bf16={"enabled": True}), "z0_gas1_tmbspg4"),
        (spec(num_gpus=[2, 4]), 0, run(num_gpus=4), "z0_ng4_gas1_tmbspg4"),
        (spec(search={"args": {"--ckpt": [False, True]}}), 0, run(args="--ckpt"), "z0_cT_gas1_tmbspg4"),
        (
            spec({"zero_optimization": {"offload_optimizer": OFFLOAD}}), 1, run(1),
            "z1_oonone_oopmT_gas1_tmbspg4",
        ),
        (
            spec(arg_mappings={"train_micro_batch_size_per_gpu": "--batch"}), 0, run(args="--batch 4"),
            "z0_gas1_tmbspg4",
        ),
    ],
)  # fmt: skip
def test_what_is_in_the_space(study: StudySpec, stage: int, foreign: ForeignRun, name: str) -> None:
    found = candidate_of(
        study, study.space(stage), foreign, gases=study.accumulation_list or (1,), ranks=study.resources.ranks
    )
    assert not isinstance(found, NotInSpace), found.why
    assert found.knobs in list(study.space(stage).settings())
    assert found.name == name


@pytest.mark.parametrize(
    ("study", "stage", "foreign", "why"),
    [
        (spec(), 0, run(train_micro_batch_size_per_gpu="auto"), 'train_micro_batch_size_per_gpu is "auto"; expected'),
        (spec(), 0, run(gradient_accumulation_steps=None), "gradient_accumulation_steps is not set; expected"),
        (spec(), 0, run(gradient_accumulation_steps=3), "gradient_accumulation_steps is 3; the study tries 1"),
        (spec({"train_micro_batch_size_per_gpu": [8, 16]}), 0, run(), "is 4; the study tries 8, 16"),
        (spec(min_train_micro_batch_size_per_gpu=5), 0, run(), "is 4; the study tries 5 and more"),
        (spec({"train_micro_batch_size_per_gpu": 8}), 0, run(), "is 4; the study tries 8 and more"),
        (spec(max_train_micro_batch_size_per_gpu=3), 0, run(), "is 4; the study tries at most 3"),
        (spec(max_train_batch_size=7), 0, run(), "train_batch_size is 8; the study tries 1 to 7"),
        (spec(), 0, run(num_gpus=4), "it ran on 4 GPUs per node; the study's command uses 2"),
        (
            spec(fast=False), 1, run(1, zero={"reduce_bucket_size": 3}),
            "zero_optimization.reduce_bucket_size is 3; the study tries 50000000, 500000000, 1000000000",
        ),
        (
            spec({"zero_optimization": {"round_robin_gradients": [True, False]}}), 2, run(2),
            "zero_optimization.round_robin_gradients is not set; the study tries",
        ),
        (
            spec({"zero_optimization": {"reduce_bucket_size": 2}}), 1, run(1),
            "zero_optimization.reduce_bucket_size is 500000000; in the study it is 2",
        ),
        (
            spec({"optimizer": {"params": {"lr": 0.1}}}), 0, run(optimizer={"params": {"lr": 0.2}}),
            "optimizer.params.lr is 0.2; in the study it is 0.1",
        ),
        (spec(), 0, run(fp16={"enabled": 1}), "fp16.enabled is 1; in the study it is not set"),
        (spec(), 0, run(script="other.py"), "it ran other.py; the study's command runs t.py"),
        (spec(), 0, run(args="--length 2048"), "its script had the arguments '--length 2048'"),
        (
            # its runs share one list of arguments, so that a flag may be another run's
            spec(arg_mappings={"train_micro_batch_size_per_gpu": "--batch"}), 0, run(args="--batch 8"),
            "it was launched with --batch 8, but its configuration has train_micro_batch_size_per_gpu 4",
        ),
        (
            spec({"fp16": {"enabled": False}}, arg_mappings={"fp16.enabled": "--half"}), 0,
            run(args="--half", fp16={"enabled": False}),
            "it was launched with --half, but its configuration has fp16.enabled false",
        ),
    ],
)  # fmt: skip
def test_what_is_not_in_the_space_says_what_differs(
    study: StudySpec, stage: int, foreign: ForeignRun, why: str
) -> None:
    found = candidate_of(
        study, study.space(stage), foreign, gases=study.accumulation_list or (1,), ranks=study.resources.ranks
    )
    assert isinstance(found, NotInSpace)
    assert why in found.why


def test_without_a_number_of_gpus_in_the_command_nobody_can_tell() -> None:
    found = candidate_of(spec(), spec().space(0), run(), gases=(1,), ranks=None)
    assert isinstance(found, NotInSpace)
    assert "import again after the baseline has run" in found.why


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_every_candidate_of_a_space_is_found_again_from_its_configuration(stage: int) -> None:
    study = spec(
        {"zero_optimization": {"offload_optimizer": OFFLOAD}},
        search={"args": {"--ckpt": [None, "full"]}, "ds_config": {"a.b": [None, 1, 2]}},
        fast=stage == 3,
    )
    space = study.space(stage)
    for candidate in space.candidates([1, 8], [1]):
        foreign = run(args="--ckpt full" if dict(candidate.knobs)["--ckpt"] else "")
        config = {**candidate_config(study.ds_config, candidate), "autotuning": {}}
        foreign = ForeignRun(ds_config=config, command=foreign.command, num_gpus=2, num_nodes=1)
        assert candidate_of(study, space, foreign, gases=(1,), ranks=2) == candidate
