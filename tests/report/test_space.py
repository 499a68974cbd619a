"""What a study may try is said before its first run."""

import pytest

from dsopt.report.space import space_lines
from dsopt.study.candidate_run import run_config
from tests.made_up import spec

OFFLOAD = {"offload_optimizer": {"device": ["none", "cpu"]}}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {},
            "ZeRO 0 to 3; micro-batch sizes from 1; accumulation as it pays; at most 50 runs at each stage, and the "
            "confirmation.",
        ),
        (
            {"zero_optimization": {"stage": [1, 3], **OFFLOAD}, "train_micro_batch_size_per_gpu": [4, 2, 16]},
            "ZeRO 1 and 3; micro-batch sizes 2, 4 and 16; accumulation as it pays; values of offload_optimizer",
        ),
        ({"gradient_accumulation_steps": [1, 2]}, "ZeRO 0 to 3; micro-batch sizes from 1; accumulation 1 and 2; "),
        ({"train_micro_batch_size_per_gpu": [8]}, "ZeRO 0 to 3; micro-batch size 8; accumulation as it pays; "),
    ],
)
def test_the_space_is_said(config: dict, said: str) -> None:
    [line] = space_lines(spec(config))
    assert line.startswith(f"It searches {said}")


def test_a_narrow_space_says_how_to_widen_it() -> None:
    narrow = spec({"zero_optimization": {"stage": 3}, "gradient_accumulation_steps": 4}, tuner_num_trials=1)
    assert space_lines(narrow) == [
        "It searches ZeRO 3 only; micro-batch sizes from 1; accumulation 4 only; at most 1 run and the confirmation.",
        'To try more: "stage": [3, 0, 1, 2] or "gradient_accumulation_steps": [4, 1, 2, 8].',
    ]
    wider = spec({"zero_optimization": {"stage": [3, 0, 1, 2]}, "gradient_accumulation_steps": [4, 1, 2, 8]})
    assert run_config(wider, None) == run_config(narrow, None)  # the user's own run stays what it was


def test_the_largest_size_is_said() -> None:
    [line] = space_lines(spec(max_train_micro_batch_size_per_gpu=32))
    assert "micro-batch sizes from 1 to 32; " in line
