"""The gallery `studies/` with real runs on two CPU ranks: every study is created and worked on as its README says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dsopt.launch.program import path_with
from tests.conftest import Dsopt
from tests.gallery import copy_gallery

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("real")]  # one at a time: they use all cores

# of what the best's batch means, and of a machine that has other work to do: neither says anything of the study
EXPECTED = ("a global batch of", "which is more than launches differ by")
WINDOW = {"start_profile_step": 3, "end_profile_step": 9, "tuner_num_trials": 2, "tuner_early_stopping": 1}
TINY_LLAMA = {
    "hidden_size": 64, "intermediate_size": 128, "vocab_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip


def work_on(dsopt: Dsopt, folder: str) -> dict:
    """Works on a folder's study with few and short runs; gives the runs of its search by candidate."""
    path = copy_gallery(dsopt) / folder / "study.yaml"
    study = yaml.safe_load(path.read_text())
    study["autotuning"] = {**study.get("autotuning", {}), **WINDOW}
    study |= {"measurement": {"race": False}, "confirmation": {"finalists": 1, "rounds": 1}}
    path.write_text(yaml.safe_dump(study))
    dsopt("study", "create", str(path))
    output = dsopt("worker", study["name"], "--devices", "cpu:2")
    warned = [line for line in output.splitlines() if "WARNING" in line]
    assert [line for line in warned if not any(words in line for words in EXPECTED)] == [], output
    assert dsopt.json("study", "best", study["name"])["comparison"] is not None
    runs = {run["candidate"]: run for run in dsopt.json("study", "show", study["name"])["runs"] if run["round"] == 0}
    assert {run["state"] for run in runs.values()} == {"measured"}, output
    assert len(runs) > 1
    return runs


def engine_of(dsopt: Dsopt, folder: str, candidate: str = "baseline") -> dict:
    """What dsopt saw of a run."""
    metrics = dsopt.cwd / "studies" / folder / "autotuning_results" / candidate / "metrics.json"
    return json.loads(metrics.read_text())["engine"]


@pytest.mark.parametrize("folder", ["tiny-gpt", "hf-trainer", "accelerate"])
def test_a_study_finds_runs(dsopt: Dsopt, folder: str) -> None:
    runs = work_on(dsopt, folder)
    engines = [engine_of(dsopt, folder, candidate) for candidate in runs]
    assert len({engine["micro_batch"] for engine in engines}) > 1  # the script takes its size from the configuration
    assert {engine["own_settings"] for engine in engines} == {""}  # and all else, whatever libraries fill in


def test_a_pipeline_has_two_stages_and_one_replica(dsopt: Dsopt) -> None:
    work_on(dsopt, "pipeline")
    engine = engine_of(dsopt, "pipeline")
    assert (engine["pipeline_stages"], engine["micro_batch"], engine["gas"]) == (2, 8, 4)
    assert engine["num_params"] == 4_227_850  # of both stages


def test_offload_is_a_dimension(dsopt: Dsopt) -> None:
    runs = work_on(dsopt, "offload")
    assert any("oonone" in candidate for candidate in runs)


def test_adapters_train_few_parameters(dsopt: Dsopt) -> None:
    work_on(dsopt, "lora")
    engine = engine_of(dsopt, "lora")
    assert engine["trainable_params"] < engine["num_params"] / 10


@pytest.mark.parametrize("folder", ["gpt2-large"])  # the others take as long and go the same way
def test_a_published_example_is_compared(dsopt: Dsopt, folder: str) -> None:
    """The table of DeepSpeed's documents, with small models on generated data."""
    work_on(dsopt, f"published/{folder}")
    hand_tuned = f"hand-tuned=studies/published/{folder}/hand_tuned.json"
    output = dsopt("compare", folder, "--with", hand_tuned, "--devices", "cpu:2")
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
    command = ["deepspeed", "--num_gpus", "2", "train.py", *words.split()]
    if "_steps" in words:
        command += ["--output_dir", "out", "--report_to", "none"]
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
