"""Candidates as people read them."""

import pytest

from dsopt.report.readable import knob_text, readable, readable_name, value_text
from dsopt.study.space import ZERO, Candidate, Knob


def test_a_candidate_reads_as_stage_sizes_and_knobs() -> None:
    knobs = (
        (f"{ZERO}reduce_bucket_size", 50_000_000),
        (f"{ZERO}overlap_comm", False),
        ("--gradient_checkpointing", ""),
        ("--flash", None),
    )
    candidate = Candidate(stage=2, micro_batch=24, gas=4, knobs=knobs)
    assert readable(candidate) == "ZeRO 2 · 24 × 4 · bucket 50M · overlap off · --gradient_checkpointing"


def test_what_is_no_candidate_has_a_name_too() -> None:
    candidate = Candidate(stage=3, micro_batch=1, gas=1)
    assert readable_name("baseline", None, 2) == "your configuration · round 2"
    assert readable_name("profile", candidate) == "ZeRO 3 · 1 × 1 (least memory)"
    assert readable_name("vanilla", None) == "vanilla"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (50_000_000, "50M"),
        (1_000_000_000, "1B"),
        (500_000_000, "500M"),
        (14745600, "14,745,600"),
        (262144, "262,144"),
        (10000, "10K"),
        (9999, "9999"),
        (5e7, "50M"),
        (0.5, "0.5"),
        (True, "on"),
        (None, "not given"),
        ("cpu", "cpu"),
    ],
)
def test_numbers_are_short_only_where_that_is_exact(value: object, shown: str) -> None:
    assert value_text(value) == shown


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("--dtype", "bf16", "--dtype bf16"),
        ("activation_checkpointing.number_checkpoints", 4, "activation checkpointing.number checkpoints 4"),
        (f"{ZERO}offload_optimizer.device", "cpu", "optimizer offload cpu"),
        (f"{ZERO}offload_optimizer.device", "none", "optimizer offload none"),
        ("num_gpus", 4, "GPUs 4"),
    ],
)
def test_knobs_in_words(key: str, value: Knob, shown: str) -> None:
    assert knob_text(key, value) == shown
