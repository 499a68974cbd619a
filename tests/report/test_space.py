"""What a study may try is said before its first run."""

import pytest

from dsopt.report.space import space_lines
from dsopt.study.candidate_run import run_config
from tests.made_up import GIB, spec

LIMIT = "A run takes at most 15 min (timeout_seconds); the first one shows how long it all takes."
OFFLOAD = {"offload_optimizer": {"device": ["none", "cpu"]}}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {},
            "ZeRO 0 to 3; micro-batch sizes from 1; your own accumulation; at most 50 runs at each stage, and "
            "what runs again.",
        ),
        (
            {"zero_optimization": {"stage": [1, 3], **OFFLOAD}, "train_micro_batch_size_per_gpu": [4, 2, 16]},
            "ZeRO 1 and 3; micro-batch sizes 2, 4 and 16; your own accumulation; values of offload_optimizer",
        ),
        ({"gradient_accumulation_steps": [1, 2]}, "ZeRO 0 to 3; micro-batch sizes from 1; accumulation 1 and 2; "),
        (
            {"train_micro_batch_size_per_gpu": [8, 16]},
            "ZeRO 0 to 3; micro-batch sizes 8 and 16; your own accumulation. That is your own configuration and 7 "
            "other candidates: at most 7 runs and what runs again.",
        ),
    ],
)
def test_the_space_is_said(config: dict, said: str) -> None:
    line, *others = space_lines(spec(config))
    assert line.startswith(f"It searches {said}")
    assert LIMIT in others


@pytest.mark.parametrize(
    ("sizes", "limit", "said", "wider"),
    [
        (
            4,
            4,
            "micro-batch size 4; accumulation 4 only. Your own configuration is the only candidate, unless it runs out "
            "of memory: then dsopt tries up to 3 with smaller micro-batch sizes.",
            'a larger "max_train_micro_batch_size_per_gpu" than 4, or none',
        ),
        (
            [4],
            None,
            "micro-batch size 4; accumulation 4 only. Your own configuration is the only candidate, so there is "
            "nothing to compare it with.",
            'more sizes in "train_micro_batch_size_per_gpu": [4]',
        ),
        (
            2,
            8,
            "micro-batch sizes from 2 to 8; accumulation 4 only. That is your own configuration and 6 to 7 other "
            "candidates: at most 7 runs and what runs again.",
            'a larger "max_train_micro_batch_size_per_gpu" than 8, or none',
        ),
    ],
)
def test_candidates_are_counted(sizes: object, limit: int | None, said: str, wider: str) -> None:
    config = {
        "zero_optimization": {"stage": 3}, "gradient_accumulation_steps": 4, "train_micro_batch_size_per_gpu": sizes,
    }  # fmt: skip
    line, *_, last = space_lines(spec(config, max_train_micro_batch_size_per_gpu=limit))
    assert line == f"It searches ZeRO 3 only; {said}"
    assert last.startswith(
        "To try more, under another --name, write in DeepSpeed's configuration: "
        '"zero_optimization": {"stage": [3, 0, 1, 2]} or '
    ) and last.endswith(f" or {wider}.")


def test_a_kept_batch_is_widened_on_the_command_line_and_not_in_the_configuration() -> None:
    config = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 4}
    kept = spec(config, max_train_micro_batch_size_per_gpu=4).model_copy(update={"global_batch": "keep"})
    assert space_lines(kept)[-1] == (
        "To try more, under another --name, write in DeepSpeed's configuration: "
        '"zero_optimization": {"stage": [3, 0, 1, 2]} or a larger "max_train_micro_batch_size_per_gpu" than 4, or none'
        ", or do without --keep-global-batch (global_batch: keep)."
    )


def test_where_ranks_count_and_are_unknown_no_number_is_said() -> None:
    study = spec(max_train_batch_size=64).model_copy(update={"command": "deepspeed t.py --deepspeed_config c.json"})
    assert "; at most 50 runs at each stage" in space_lines(study)[0]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"gradient_accumulation_steps": [4, 1]}, "gradient_accumulation_steps 4"),
        (
            {"train_micro_batch_size_per_gpu": [8, 2], "zero_optimization": {"stage": [2, 1], **OFFLOAD}},
            "train_micro_batch_size_per_gpu 8, stage 2, offload_optimizer.device none",
        ),
    ],
)
def test_what_the_own_run_has_of_lists_is_said(config: dict, said: str) -> None:
    assert f"Your own run, to compare with, has the first value of each list: {said}." in space_lines(spec(config))


def test_without_lists_nothing_is_said_of_them() -> None:
    assert not [line for line in space_lines(spec({"gradient_accumulation_steps": 4})) if "list" in line]


def test_the_own_run_says_its_stage_because_accelerate_wants_that() -> None:
    assert run_config(spec({}), None)["zero_optimization"] == {"stage": 0}


def test_a_narrow_space_says_how_to_widen_it() -> None:
    narrow = spec({"zero_optimization": {"stage": 3}, "gradient_accumulation_steps": 4}, tuner_num_trials=1)
    assert space_lines(narrow) == [
        "It searches ZeRO 3 only; micro-batch sizes from 1; accumulation 4 only; at most 1 run and what runs again.",
        LIMIT,
        "To try more, under another --name, write in DeepSpeed's configuration: "
        '"zero_optimization": {"stage": [3, 0, 1, 2]} or '
        '"gradient_accumulation_steps": [4, 1, 2, 8].',
    ]
    wider = spec({"zero_optimization": {"stage": [3, 0, 1, 2]}, "gradient_accumulation_steps": [4, 1, 2, 8]})
    assert run_config(wider, None) == run_config(narrow, None)  # the user's own run stays what it was


def test_the_largest_size_is_said() -> None:
    line, *_ = space_lines(spec(max_train_micro_batch_size_per_gpu=32))
    assert "micro-batch sizes from 1 to 32; " in line


def test_a_model_that_cannot_fit_is_said_before_the_first_run() -> None:
    """16 B a parameter at ZeRO 0 are 112 GB for 7 billion, on a GPU of 80."""
    known = {"model_info": {"num_params": 7_000_000_000}}
    large = spec({"bf16": {"enabled": True}, "zero_optimization": {"stage": 0}}, **known)
    large = large.model_copy(update={"memory_per_device": 80 * GIB})
    *_, said, helps, first, second, third, fourth = space_lines(large)
    assert said == (
        "Your own configuration needs 104.31 GiB for the model's states alone on each GPU of 80.00 GiB, so it will run "
        "out of memory. dsopt searches what the study allows."
    )
    assert helps == "These would help, too, but the study does not allow them:"
    assert first.startswith("- gradient checkpointing")
    assert second.startswith("- ZeRO 2: saves 45.63 GiB of model states")
    assert third.startswith("- offload_optimizer to cpu") and fourth.startswith("- ZeRO 3: saves")
    fits = large.model_copy(update={"memory_per_device": 141 * GIB})
    assert not any("out of memory" in line for line in space_lines(fits))
