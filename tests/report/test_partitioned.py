"""A best configuration of ZeRO 3 saves as the user's own does, or its user is told that it may not."""

import pytest

from dsopt.report.partitioned import partitioned
from dsopt.study.candidate_run import run_config
from dsopt.study.space import Candidate
from tests.made_up import facts, history, observation, spec

GATHER = "stage3_gather_16bit_weights_on_model_save"


@pytest.mark.parametrize(("own", "best", "is_told"), [(0, 3, True), (2, 3, True), (3, 3, False), (3, 1, False)])
def test_parts_of_weights_are_told_where_the_users_own_training_has_them_whole(
    own: int, best: int, is_told: bool
) -> None:
    """`dsopt run` trained to the end, and `torch.save` wrote empty tensors."""
    candidate = Candidate(stage=best, micro_batch=8, gas=1)
    known = history(observation(candidate, 2.0), baseline=facts(zero_stage=own))
    assert bool(partitioned(spec(), known, candidate)) == is_told
    assert partitioned(spec(), known, None) == []


@pytest.mark.parametrize(
    ("zero", "stage", "gathers"),
    [
        ({}, 3, True),
        ({"stage": [1, 3]}, 3, True),
        ({"stage": "all"}, 3, True),
        ({"stage": [1, 3]}, 1, None),
        ({"stage": 3}, 3, None),  # as the user has it
        ({"stage": [0, 3], GATHER: False}, 3, False),
        ({"stage": [0, 3], GATHER: "auto"}, 3, "auto"),
        ({"stage": [0, 3], "gather_16bit_weights_on_model_save": False}, 3, None),
    ],
)
def test_whole_weights_are_saved_as_without_zero_3(zero: dict, stage: int, gathers: object) -> None:
    """`save_16bit_model` saved nothing, and the Trainer no `model.safetensors`."""
    study = spec({"zero_optimization": zero} if zero else {})
    config = run_config(study, Candidate(stage=stage, micro_batch=4, gas=1))
    assert config["zero_optimization"].get(GATHER) == gathers
    assert GATHER not in run_config(study, None)["zero_optimization"] or GATHER in zero
