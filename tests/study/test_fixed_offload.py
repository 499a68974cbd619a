"""Offload that a study fixes and none of its stages can have is refused when the study is made."""

import json
from pathlib import Path

import pytest

from dsopt.errors import DsoptError
from dsopt.study.load import build_spec


def build(folder: Path, zero: dict, search: dict | None = None) -> None:
    (folder / "t.py").touch()
    (folder / "c.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}))
    command = "deepspeed --num_gpus 2 t.py --deepspeed_config c.json"
    build_spec({"name": "s", "command": command, "cwd": str(folder), "search": search or {}}, "study.yaml")


@pytest.mark.parametrize(
    ("zero", "search", "message"),
    [
        (
            {"stage": 0, "offload_optimizer": {"device": "cpu"}}, None,
            "zero_optimization.offload_optimizer.device: cpu needs ZeRO 1 or higher, but the study tries only ZeRO 0",
        ),
        (
            {"stage": [1, 2], "offload_param": {"device": "cpu"}}, None,
            "zero_optimization.offload_param.device: cpu needs ZeRO 3, but the study tries only ZeRO 1, 2",
        ),
        (
            {"stage": 2}, {"ds_config": {"zero_optimization.offload_param.device": ["cpu"]}},
            "zero_optimization.offload_param.device: cpu needs ZeRO 3, but the study tries only ZeRO 2",
        ),
    ],
)  # fmt: skip
def test_it_is_refused_with_what_to_do(tmp_path: Path, zero: dict, search: dict | None, message: str) -> None:
    with pytest.raises(DsoptError) as caught:
        build(tmp_path, zero, search)
    assert message in str(caught.value)
    assert str(caught.value).endswith("Add that stage to zero_optimization.stage, or leave out the offload.")


@pytest.mark.parametrize(
    "zero",
    [
        {"stage": [0, 1], "offload_optimizer": {"device": "cpu"}},
        {"stage": 0, "offload_optimizer": {"device": ["none", "cpu"]}},
        {"stage": 2, "offload_param": {"device": "none"}},
        {"offload_param": {"device": "cpu"}},
    ],
)
def test_one_stage_that_can_have_it_is_enough(tmp_path: Path, zero: dict) -> None:
    build(tmp_path, zero)
