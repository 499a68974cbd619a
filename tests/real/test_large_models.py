"""The large models of the gallery, made small, on the CPU: their scripts train, and a published table is made."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dsopt.launch.devices import free_ports
from dsopt.launch.program import path_with
from tests.conftest import Dsopt
from tests.gallery import copy_gallery
from tests.real.test_gallery import work_on

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("hour")]  # beside the other real runs

TINY_LLAMA = {
    "hidden_size": 64, "intermediate_size": 128, "vocab_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip


@pytest.mark.parametrize("folder", ["gpt2-large"])  # the others take as long and go the same way
def test_a_published_example_is_compared(dsopt: Dsopt, folder: str) -> None:
    """The table of DeepSpeed's documents, with small models on generated data."""
    work_on(dsopt, f"published/{folder}")
    hand_tuned = f"hand-tuned=studies/published/{folder}/hand_tuned.json"
    output = dsopt("compare", folder, "--with", hand_tuned, "--devices", "cpu:1")
    assert "As in DeepSpeed's documents:" in output
    rows = dsopt.json("study", "show", f"{folder}-compare")["rows"]
    assert [row["name"] for row in rows][:3] == ["vanilla", "yours", "hand-tuned"]
    assert all(row["value"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        (
            "published",
            "--model_name distilbert --small --deepspeed distilbert/hand_tuned.json --max_steps 3 "
            "--per_device_train_batch_size 256",
        ),
        (
            "published",
            "--model_name deberta-v2-xxlarge --small --deepspeed deberta-v2-xxlarge/hand_tuned.json --max_steps 3 "
            "--per_device_train_batch_size 8",
        ),
        ("gpt-1b", "--hidden 64 --heads 2 --layers 2 --length 16 --vocab 256 --steps 3 --deepspeed_config small.json"),
        ("llama-8b", "--config_name small --length 16 --bf16 --use_cpu --max_steps 3 --deepspeed small.json"),
    ],
    ids=["distilbert", "deberta", "gpt-1b", "llama-8b"],
)
def test_the_scripts_of_large_models_train(dsopt: Dsopt, folder: str, words: str) -> None:
    """With small models; the optimizer is torch's, as the CPU has none of DeepSpeed's without a compiler."""
    cwd = copy_gallery(dsopt) / folder
    if (cwd / "ds_config.json").exists():
        ds_config = json.loads((cwd / "ds_config.json").read_text())
        ds_config["optimizer"]["params"]["torch_adam"] = True
        (cwd / "small.json").write_text(json.dumps({**ds_config, "zero_optimization": {"stage": 1}}))
    if (cwd / "config.json").exists():
        shape = {**json.loads((cwd / "config.json").read_text()), **TINY_LLAMA}
        (cwd / "small").mkdir()
        (cwd / "small" / "config.json").write_text(json.dumps(shape))
    environment = {**dsopt.environment, "PATH": path_with(dsopt.environment, Path(sys.executable))}
    port = next(free_ports())  # other real runs go on beside these
    command = ["deepspeed", "--num_gpus", "1", "--master_port", str(port), "train.py", *words.split()]
    if "_steps" in words:
        command += ["--output_dir", "out", "--report_to", "none"]
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
