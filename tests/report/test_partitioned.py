"""A best configuration of ZeRO 3 saves as the user's own does, or its user is told that it may not."""

import json
from pathlib import Path

import pytest

from dsopt.report.files import changed_text
from dsopt.report.optimal import measured_optimum, optimum
from dsopt.report.partitioned import partitioned
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
    ("zero", "own", "stage", "gathers"),
    [
        ({}, 0, 3, True),
        ({"stage": [1, 3]}, 1, 3, True),
        ({"stage": "all"}, 0, 3, True),
        ({"stage": [1, 3]}, 1, 1, None),
        ({"stage": 3}, 3, 3, None),  # as the user has it
        ({}, 3, 3, None),  # as the script has it
        ({"stage": [0, 3], GATHER: False}, 0, 3, False),
        ({"stage": [0, 3], "gather_16bit_weights_on_model_save": False}, 0, 3, None),
    ],
)
def test_whole_weights_are_saved_as_without_zero_3(zero: dict, own: int, stage: int, gathers: object) -> None:
    """`save_16bit_model` saved nothing, and the Trainer no `model.safetensors`. It is in no run: it costs none."""
    study = spec({"zero_optimization": zero} if zero else {})
    known = history(observation(Candidate(stage=stage, micro_batch=4, gas=1), 200.0), baseline=facts(zero_stage=own))
    config = optimum(study, known).ds_config
    assert config["zero_optimization"].get(GATHER) == gathers
    assert measured_optimum(study, known).ds_config["zero_optimization"].get(GATHER) == zero.get(GATHER)


@pytest.mark.parametrize(
    ("changed", "is_told"),
    [
        ({}, False),
        ({"zero_optimization": {"stage": 3}}, False),
        ({"zero_optimization": {"stage": 3, GATHER: False}}, True),
        ({"fp16": {}}, True),
        ({"train_batch_size": None}, False),
        ({"train_batch_size": 16}, True),
    ],
)
def test_a_file_of_an_earlier_version_has_what_was_measured(tmp_path: Path, changed: dict, is_told: bool) -> None:
    """It lacks what changes no figure, and was said to have been changed."""
    best = {"train_batch_size": 8, "zero_optimization": {"stage": 3, GATHER: True}}
    earlier = {key: value for key, value in (best | changed).items() if value is not None}
    (tmp_path / "ds.json").write_text(json.dumps(earlier))
    assert bool(changed_text("s", tmp_path / "ds.json", best)) == is_told
