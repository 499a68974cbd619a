"""Whole studies with real `deepspeed` runs, through the command line."""

import contextlib
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from dsopt.store.studies import Store
from tests.conftest import SCRIPTS, TINY_GPT, Dsopt
from tests.studies import check_nothing_lost_nothing_doubled, wait_until_nothing_runs

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]  # one at a time: they use all cores

OPTIMIZER = {"type": "AdamW", "params": {"lr": 3e-4, "torch_adam": True}}
SHORT = {
    "measurement": {"max_steps": 20, "max_seconds": 4},
    "confirmation": {"finalists": 1, "rounds": 2},
    "timeout_seconds": 150,
}


def left_in_shared_memory(folder: Path) -> list[Path]:
    """What the runs of a folder have left there: DeepSpeed's CPU ranks name their buffers after the run's own port."""
    commands = [path.read_text() for path in folder.glob("autotuning_results/*/cmd.txt")]
    ports = {port for command in commands for port in re.findall(r"--master_port (\d+)", command)}
    assert ports
    return [path for port in ports for path in Path("/dev/shm").glob(f"deepspeed_allreduce_buffer_*_{port}_*")]


@pytest.mark.parametrize("storage_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True)
def test_a_training_script_is_tuned_from_create_to_best(dsopt_on: Dsopt) -> None:
    shutil.copy(TINY_GPT, dsopt_on.cwd / "my train.py")  # a path with a space, too
    ds_config = {
        "train_micro_batch_size_per_gpu": [2, 16],
        "optimizer": OPTIMIZER,
        "zero_optimization": {"stage": 1},
        "autotuning": {"enabled": True},
    }
    (dsopt_on.cwd / "ds config.json").write_text(json.dumps(ds_config))
    command = ["deepspeed", "--num_gpus", "2", "my train.py", "--layers=2", "--deepspeed_config", "ds config.json"]
    (dsopt_on.cwd / "tiny.yaml").write_text(yaml.safe_dump({"command": command, **SHORT}))
    dsopt_on("study", "create", "tiny.yaml")
    output = dsopt_on("worker", "tiny", "--devices", "cpu:2")
    assert "ZeRO 1 · 2 × 1 " not in output  # it is the user's own configuration
    assert "times as fast as your configuration (95 % interval" in output
    check_nothing_lost_nothing_doubled(dsopt_on, "tiny")
    best = dsopt_on.json("study", "best", "tiny", "-o", "optimal.json")
    assert best["comparison"]["best"] == "z1_gas1_tmbspg16"
    assert best["comparison"]["speedup"] > 1.2  # 8 times the samples for a few times the work
    optimal = json.loads((dsopt_on.cwd / "optimal.json").read_text())
    assert optimal["train_micro_batch_size_per_gpu"] == 16
    assert optimal["optimizer"] == OPTIMIZER
    assert "autotuning" not in optimal
    assert left_in_shared_memory(dsopt_on.cwd) == []


@pytest.mark.slow
def test_the_hugging_face_trainer_is_tuned_unchanged(dsopt: Dsopt) -> None:
    shutil.copy(SCRIPTS / "finetune.py", dsopt.cwd)
    ds_config = {
        # every key that Hugging Face's document has as "auto"
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "train_batch_size": "auto",
        "gradient_clipping": "auto",
        "fp16": {"enabled": "auto", "loss_scale": 0},
        "bf16": {"enabled": "auto"},
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto", "torch_adam": True},
        },
        "scheduler": {
            "type": "WarmupDecayLR",
            "params": {
                "total_num_steps": "auto",
                "warmup_min_lr": "auto",
                "warmup_max_lr": "auto",
                "warmup_num_steps": "auto",
            },
        },
        "zero_optimization": {
            "stage": [2, 3],
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
        },
        "autotuning": {
            "enabled": True,
            # a search on a busy machine would try a smaller size, too
            "min_train_micro_batch_size_per_gpu": 8,
            "max_train_micro_batch_size_per_gpu": 8,
            "num_tuning_micro_batch_sizes": 1,
        },
    }
    (dsopt.cwd / "ds_config.json").write_text(json.dumps(ds_config))
    command = (
        "deepspeed --num_gpus 1 finetune.py --deepspeed ds_config.json --output_dir out --use_cpu "
        "--per_device_train_batch_size 4 --max_steps 500 --report_to none --save_strategy no --disable_tqdm true"
    )
    study = {"command": command, "stage_order": "sequential", **SHORT}
    study["measurement"] = {**SHORT["measurement"], "race": False}  # which run loses a race is the machine's mood
    (dsopt.cwd / "hf.yaml").write_text(yaml.safe_dump(study))
    dsopt("study", "create", "hf.yaml")
    dsopt("worker", "hf", "--devices", "cpu:1")
    best = dsopt.json("study", "best", "hf")
    runs = best_runs(dsopt)
    assert {run["candidate"]: run["state"] for run in runs if run["round"] == 0} == {
        "baseline": "measured",
        "z2_gas1_tmbspg8": "measured",
        "z3_gas1_tmbspg8": "measured",
    }
    if best["comparison"]["best"] == "z2_gas1_tmbspg8":
        assert "--per_device_train_batch_size 8" in best["command"]
    for run in runs:
        config = json.loads((Path(run["run_dir"]) / "ds_config.json").read_text())
        typed = (Path(run["run_dir"]) / "cmd.txt").read_text()
        size = config["train_micro_batch_size_per_gpu"]
        assert f"--per_device_train_batch_size {4 if size == 'auto' else size}" in typed


def best_runs(dsopt: Dsopt) -> list[dict]:
    return dsopt.json("study", "show", "hf")["runs"]


def wait_for_another_run(store: Store, name: str, known: set[str]) -> None:
    deadline = time.monotonic() + 120
    while not any(
        run["id"] not in known and (Path(run["run_dir"]) / "cmd.txt").exists() for run in store.runs(store.get(name))
    ):
        assert time.monotonic() < deadline, "no run was launched"
        time.sleep(0.05)


@pytest.mark.chaos
def test_ten_kills_in_the_middle_of_real_runs_lose_double_and_orphan_nothing(dsopt: Dsopt) -> None:
    shutil.copy(TINY_GPT, dsopt.cwd / "train.py")
    ds_config = {
        "train_micro_batch_size_per_gpu": [2, 4, 8, 16, 32],
        "optimizer": OPTIMIZER,
        "zero_optimization": {"stage": [0, 1]},
        "autotuning": {"enabled": True, "tuner_early_stopping": 50},
    }
    (dsopt.cwd / "ds_config.json").write_text(json.dumps(ds_config))
    command = "deepspeed --num_gpus 2 train.py --layers 2 --deepspeed_config ds_config.json"
    # ten runs of several seconds each, so that the study cannot end within the time of the kills
    study = {"name": "kills", "command": command, **SHORT, "stage_order": "sequential"}
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump(study))
    dsopt("study", "create", "study.yaml")
    # from the launch, over imports and engine, into the measurement and the next run
    for seconds in (3, 0, 5, 1, 2, 0.5, 4, 1.5, 0, 2.5):
        with contextlib.closing(Store.open(dsopt.environment["DSOPT_STORAGE"])) as store:
            known = {run["id"] for run in store.runs(store.get("kills"))}
            worker = dsopt.start("worker", "kills", "--devices", "cpu:2")
            wait_for_another_run(store, "kills", known)
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(timeout=seconds)
        worker.kill()
        worker.communicate()
        wait_until_nothing_runs(dsopt.cwd)
    time.sleep(1)
    assert left_in_shared_memory(dsopt.cwd) == []
    dsopt("worker", "kills", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt, "kills")
    runs = dsopt.json("study", "show", "kills")["runs"]
    searched = {run["candidate"] for run in runs if run["round"] == 0 and run["state"] in ("measured", "slow")}
    sizes = [(stage, size) for stage in (0, 1) for size in (2, 4, 8, 16, 32) if (stage, size) != (0, 2)]
    assert searched == {"baseline", *(f"z{stage}_gas1_tmbspg{size}" for stage, size in sizes)}
    # a kill may meet the time between two runs
    assert sum(run["reason"] == "lost" for run in runs) >= 2


def test_a_script_without_deepspeed_ends_the_study_with_one_clear_message(dsopt: Dsopt) -> None:
    (dsopt.cwd / "train.py").write_text("print('no DeepSpeed here')\n")
    (dsopt.cwd / "ds_config.json").write_text("{}")
    output = dsopt(
        "tune", "--devices", "cpu:2", "--", "deepspeed", "--num_gpus", "2", "train.py", "--deepspeed_config",
        "ds_config.json", code=1,
    )  # fmt: skip
    assert "error: study 'train': the baseline could not be measured: the script ended without calling" in output
    assert "Traceback" not in output
    assert "stopped" in dsopt("study", "list")
