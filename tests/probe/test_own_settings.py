"""What a script changes in the configuration that it was given."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsopt.probe.own_settings import own_settings

GIVEN = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": "auto",
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8, "overlap_comm": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.1, "betas": [0.9, 0.99]}},
    "comet": {"enabled": True, "api_key": "${COMET_API_KEY}"},
}
ZERO = GIVEN["zero_optimization"]


@pytest.mark.parametrize(
    ("used", "told"),
    [
        ({}, None),
        ({"train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0, "steps_per_print": 9}, None),
        ({"zero_optimization": {"stage": 2, "reduce_bucket_size": 500000000, "overlap_comm": True}}, None),
        ({"zero_optimization": {**ZERO, "overlap_comm": False}}, {"zero_optimization.overlap_comm": False}),
        ({"zero_optimization": {**ZERO, "offload_optimizer": {"device": "none"}}}, None),
        (
            {"zero_optimization": {**ZERO, "offload_optimizer": {"device": "cpu"}}},
            {"zero_optimization.offload_optimizer.device": "cpu"},
        ),
        ({"zero_optimization": {"stage": 2, "overlap_comm": True}}, {"zero_optimization.reduce_bucket_size": None}),
        ({"optimizer": {"type": "AdamW", "params": {"lr": 0.2}}}, {"optimizer.params.lr": 0.2}),
        ({"comet": {"enabled": False, "api_key": "planted-comet-4711"}}, {"comet.enabled": False}),
    ],
)
def test_what_differs_is_told(tmp_path: Path, used: dict, told: dict | None) -> None:
    asked = tmp_path / "ds_config.json"
    asked.write_text(json.dumps(GIVEN))
    engine = SimpleNamespace(_config=SimpleNamespace(_param_dict={**GIVEN, **used}))
    assert own_settings(engine, asked) == (json.dumps(told) if told else "")


def test_an_engine_that_keeps_it_elsewhere_tells_nothing(tmp_path: Path) -> None:
    assert own_settings(SimpleNamespace(), tmp_path / "missing.json") == own_settings(SimpleNamespace(), None) == ""
