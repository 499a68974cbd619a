"""Settings that DeepSpeed accepts and that do nothing: each is named, with what to do, and only where it is idle."""

import json
from pathlib import Path

import pytest

from dsopt.doctor.settings import idle_settings
from dsopt.study.load import build_spec

TRAINER = "import re\nfrom transformers import Trainer\nre.compile('x')\nTrainer()\n"
PLAIN = "import torch\nmodel = torch.compile(model)\n"
COMPILES = "engine, *_ = deepspeed.initialize()\nengine.compile()\n"
CHECKPOINTS = {"activation_checkpointing": {"partition_activations": True}}
DEEPCOMPILE = {"compile": {"deepcompile": True}}


def zero(stage: object, **keys: object) -> dict:
    return {"zero_optimization": {"stage": stage, **keys}}


def idle(
    tmp_path: Path, config: dict, script: str = PLAIN, command: str = "deepspeed --num_gpus 2", *flags: str
) -> str:
    """Messages and fixes for a configuration and a script."""
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, **config}))
    words = [*command.split(), "train.py", "--deepspeed", "ds.json", *flags]
    spec, _ = build_spec({"name": "s", "command": words, "cwd": str(tmp_path)}, "test")
    found = list(idle_settings(spec))
    assert {(one.name, one.status) for one in found} <= {("configuration", "warning")}
    return "\n".join(f"{one.message} / {one.fix}" for one in found)


@pytest.mark.parametrize(
    ("config", "script", "message"),
    [
        (zero(2, zero_quantized_weights=True), PLAIN, "zero_quantized_weights: it does nothing at ZeRO 2"),
        (zero([0, 1], zero_quantized_gradients=True), PLAIN, "it does nothing at ZeRO 0 or 1"),
        (zero(1, zero_hpz_partition_size=8), PLAIN, "zero_hpz_partition_size: it does nothing"),
        (CHECKPOINTS, TRAINER, "add --activation_checkpointing True"),
        (DEEPCOMPILE, TRAINER, "Add --torch_compile True"),
        (DEEPCOMPILE, PLAIN, "Call engine.compile() after"),
    ],
)
def test_what_does_nothing_is_named(tmp_path: Path, config: dict, script: str, message: str) -> None:
    assert message in idle(tmp_path, config, script)


@pytest.mark.parametrize(
    ("config", "script", "command", "flags"),
    [
        (zero(3, zero_quantized_weights=True), PLAIN, "deepspeed", []),
        (zero([2, 3], zero_quantized_weights=True), PLAIN, "deepspeed", []),
        ({"zero_optimization": {"zero_quantized_weights": True}}, PLAIN, "deepspeed", []),  # all stages are tried
        (zero(2, zero_quantized_weights=False, zero_hpz_partition_size=1), PLAIN, "deepspeed", []),
        (CHECKPOINTS, PLAIN, "deepspeed", []),
        (CHECKPOINTS, TRAINER + "deepspeed.checkpointing.configure(None)", "deepspeed", []),
        (DEEPCOMPILE, COMPILES, "deepspeed", []),
        ({"compile": {"deepcompile": False}}, PLAIN, "deepspeed", []),
        (DEEPCOMPILE, TRAINER, "deepspeed", ["--torch_compile"]),
        (DEEPCOMPILE, TRAINER, "accelerate launch --dynamo_backend inductor", []),
        (DEEPCOMPILE, TRAINER, "ACCELERATE_DYNAMO_BACKEND=inductor deepspeed", []),
        (DEEPCOMPILE, TRAINER, "accelerate launch", []),  # its own configuration may say so
    ],
)
def test_what_does_something_is_not(tmp_path: Path, config: dict, script: str, command: str, flags: list[str]) -> None:
    assert idle(tmp_path, config, script, command, *flags) == ""


def test_a_module_beside_the_script_may_compile(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "engine.py").write_text(COMPILES)
    assert idle(tmp_path, DEEPCOMPILE, "from mine import engine\nimport train\n") == ""
    assert "deepcompile" in idle(tmp_path, DEEPCOMPILE, "from mine import other\n")


def test_a_script_that_is_no_python_is_searched_all_the_same(tmp_path: Path) -> None:
    assert "deepcompile" in idle(tmp_path, DEEPCOMPILE, "def (:\n")


def test_flags_that_recompute_already_are_not_added_again(tmp_path: Path) -> None:
    told = idle(tmp_path, CHECKPOINTS, TRAINER, "deepspeed", "--gradient_checkpointing", "True")
    assert told.endswith("/ Remove the section")
