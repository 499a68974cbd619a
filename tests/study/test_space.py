"""Tuning spaces: stages, knobs, candidates and their names."""

import pytest

from dsopt.study.ds_config import baseline_config, candidate_config, zero_stages
from dsopt.study.ds_defaults import zero_defaults
from dsopt.study.space import DEFAULT_KNOBS, Candidate, stage_space


def test_names_are_those_of_the_tutorial() -> None:
    assert Candidate(stage=1, micro_batch=3, gas=1).name == "z1_gas1_tmbspg3"
    knobs = (("zero_optimization.reduce_bucket_size", 5e7), ("zero_optimization.allgather_bucket_size", 1e9))
    assert Candidate(stage=1, micro_batch=11, gas=1, knobs=knobs).name == "z1_rbs5e+07_abs1e+09_gas1_tmbspg11"
    knobs = (("zero_optimization.overlap_comm", True), ("zero_optimization.reduce_bucket_size", 500000001))
    assert Candidate(stage=2, micro_batch=1, gas=2, knobs=knobs).name == "z2_ocT_rbs500000001_gas2_tmbspg1"


@pytest.mark.parametrize(("stage", "settings"), [(0, 1), (1, 3), (2, 24), (3, 18)])
def test_documented_spaces_without_what_deepspeed_does_not_read(stage: int, settings: int) -> None:
    space = stage_space(stage, fast=False, user_zero={})
    candidates = space.candidates([1, 2], gases=[1])
    assert len(candidates) == 2 * settings
    assert len({c.name for c in candidates}) == len(candidates)
    assert len(stage_space(stage, fast=True, user_zero={}).candidates([1, 2], gases=[1])) == 2


def test_the_tutorials_overwritten_space_has_two_times_one_candidates() -> None:
    user = {"reduce_bucket_size": [5e7, 5e8], "allgather_bucket_size": 5e8}
    candidates = stage_space(1, fast=False, user_zero=user).candidates([4], gases=[1])
    assert [dict(c.knobs) for c in candidates] == [
        {"zero_optimization.reduce_bucket_size": 5e7},
        {"zero_optimization.reduce_bucket_size": 5e8},
    ]
    config = candidate_config({"zero_optimization": {"stage": 1, **user}}, candidates[1])
    assert config["zero_optimization"] == {"stage": 1, "reduce_bucket_size": 5e8, "allgather_bucket_size": 5e8}


@pytest.mark.parametrize(
    ("key", "stages"),
    [
        ("allgather_bucket_size", ()),
        ("allgather_partitions", ()),
        ("reduce_bucket_size", (1, 2, 3)),
        ("round_robin_gradients", (1, 2)),
        ("sub_group_size", (3,)),
        ("stage3_prefetch_bucket_size", (3,)),
        ("log_trace_cache_warnings", (0, 1, 2, 3)),  # whatever is not known to be idle is tried
    ],
)
def test_a_list_is_a_dimension_where_deepspeed_reads_it(key: str, stages: tuple[int, ...]) -> None:
    spaces = {stage: stage_space(stage, fast=True, user_zero={key: [1, 2]}) for stage in range(4)}
    assert tuple(stage for stage, space in spaces.items() if space.knobs) == stages


def test_candidates_survive_as_optuna_parameters() -> None:
    candidate = Candidate(stage=2, micro_batch=8, gas=4, knobs=(("zero_optimization.overlap_comm", False),))
    assert Candidate.from_params(2, candidate.params) == candidate


@pytest.mark.parametrize(
    ("zero", "stages"),
    [
        ({}, (0, 1, 2, 3)),
        ({"zero_optimization": "all"}, (0, 1, 2, 3)),
        ({"zero_optimization": {"stage": "all"}}, (0, 1, 2, 3)),
        ({"zero_optimization": {"overlap_comm": True}}, (0, 1, 2, 3)),
        ({"zero_optimization": {"stage": 2}}, (2,)),
        ({"zero_optimization": {"stage": [3, 2]}}, (2, 3)),
    ],
)
def test_stages(zero: dict, stages: tuple[int, ...]) -> None:
    assert zero_stages(zero) == stages


def test_the_baseline_is_the_users_configuration_and_no_more() -> None:
    own = {"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 1}}
    assert baseline_config({**own, "autotuning": {"enabled": True}}) == own
    lists = {"train_micro_batch_size_per_gpu": [4, 8], "zero_optimization": {"stage": [2, 3], "overlap_comm": True}}
    assert baseline_config(lists) == {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 2, "overlap_comm": True},
    }
    assert baseline_config({"zero_optimization": "all"}) == {}


def test_a_candidate_keeps_the_users_other_settings() -> None:
    own = {
        "train_batch_size": 8,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}},
    }
    config = candidate_config(own, Candidate(stage=2, micro_batch=3, gas=2))
    assert config == {
        "bf16": {"enabled": True},
        "train_micro_batch_size_per_gpu": 3,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    }


@pytest.mark.parametrize("stage", range(4))
def test_deepspeeds_default_of_every_knob_is_known(stage: int) -> None:
    """Otherwise a run that does not name the key would not be recognised as the candidate that it is."""
    assert set(DEFAULT_KNOBS[stage]) <= set(zero_defaults(stage))


def test_spaces_that_differ_only_in_how_values_are_written_keep_their_own() -> None:
    """For Python, True is 1; on a command line it is not."""
    for values in ((True, False), (1, 0), (1.0, 0.0)):
        space = stage_space(1, fast=True, user_zero={}, further={"--flag": values})
        assert [type(candidate.knobs[0][1]) for candidate in space.candidates([1], [1])] == [type(values[0])] * 2
