"""What people bring from DeepSpeed's autotuner, with real runs: other launchers, whole trainings, their own knobs."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import SCRIPTS, TINY_GPT, Dsopt

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("real")]  # one at a time: they use all cores

OPTIMIZER = {"type": "AdamW", "params": {"lr": 3e-4, "torch_adam": True}}
SHORT = {
    "measurement": {"max_steps": 16, "max_seconds": 3, "race": False},  # which run loses a race is the machine's mood
    "confirmation": {"finalists": 1, "rounds": 2},
    "timeout_seconds": 150,
}


def states(dsopt: Dsopt, name: str) -> dict[str, str]:
    """How the runs of the search ended, by candidate."""
    runs = dsopt.json("study", "show", name)["runs"]
    return {run["candidate"]: run["state"] for run in runs if run["round"] == 0}


def test_run_finds_the_best_and_trains_to_the_end_with_all_autotuning_off(dsopt: Dsopt) -> None:
    """The old line with one word in front of it; the training of 60 steps does 60, not the six of DeepSpeed's."""
    shutil.copy(TINY_GPT, dsopt.cwd / "train.py")
    ds_config = {
        "train_micro_batch_size_per_gpu": [4],
        "optimizer": OPTIMIZER,
        "zero_optimization": {"stage": 1},
        "autotuning": {"enabled": True, "start_profile_step": 3, "end_profile_step": 9},
    }
    (dsopt.cwd / "ds_config.json").write_text(json.dumps(ds_config))
    output = dsopt(
        "run", "--devices", "cpu:2", "--", "deepspeed", "--autotuning", "run", "--num_gpus=2", "train.py",
        "--steps=60", "--layers", "2", "--deepspeed_config=ds_config.json",
    )  # fmt: skip
    assert "warning: command line: command: dsopt leaves out --autotuning" in output
    assert "trained 60 steps" in output
    optimal = json.loads((dsopt.cwd / "autotuning_results" / "ds_config_optimal.json").read_text())
    assert "autotuning" not in optimal
    assert "--autotuning" not in (dsopt.cwd / "autotuning_results" / "cmd_optimal.txt").read_text()


def test_torchrun_with_offload_and_accumulation_as_dimensions(dsopt: Dsopt) -> None:
    shutil.copy(TINY_GPT, dsopt.cwd / "train.py")
    ds_config = {
        "train_micro_batch_size_per_gpu": [4],
        "gradient_accumulation_steps": [1, 2],
        "optimizer": OPTIMIZER,
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": ["none", "cpu"], "pin_memory": False}},
        "autotuning": {"metric": "latency"},
    }
    (dsopt.cwd / "ds_config.json").write_text(json.dumps(ds_config))
    launcher = f"OMP_NUM_THREADS=1 {sys.executable} -m torch.distributed.run --nproc-per-node=1 --standalone"
    command = f"{launcher} train.py --hidden 64 --layers 2 --deepspeed_config ds_config.json"
    study = {"name": "torchrun", "command": command, "autotuning": {"tuner_type": "tpe"}, **SHORT}
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump(study))
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "torchrun", "--devices", "cpu:1")
    assert states(dsopt, "torchrun") == {
        "baseline": "measured",
        "z2_oonone_gas2_tmbspg4": "measured",
        "z2_oocpu_gas1_tmbspg4": "measured",
        "z2_oocpu_gas2_tmbspg4": "measured",
    }
    assert dsopt.json("study", "best", "torchrun")["comparison"]["best"] in ("baseline", "z2_oocpu_gas1_tmbspg4")
    offloaded = dsopt.cwd / "autotuning_results" / "z2_oocpu_gas1_tmbspg4" / "ds_config.json"
    assert json.loads(offloaded.read_text())["zero_optimization"] == {
        "stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": False}
    }  # fmt: skip


@pytest.mark.parametrize("mapped", [True, False])
def test_accelerate_launch_and_a_batch_size_that_does_not_follow(dsopt: Dsopt, mapped: bool) -> None:
    shutil.copy(SCRIPTS / "accelerated.py", dsopt.cwd / "train.py")
    ds_config = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": 2},
        "autotuning": {
            "max_train_micro_batch_size_per_gpu": 8,
            "num_tuning_micro_batch_sizes": 1,
            "arg_mappings": {"train_micro_batch_size_per_gpu": "batch-size"} if mapped else {},
        },
    }
    (dsopt.cwd / "ds_config.json").write_text(json.dumps(ds_config))
    command = (
        "OMP_NUM_THREADS=1 accelerate launch --use_deepspeed --num_processes 1 --num_machines 1 --mixed_precision no "
        "--deepspeed_config_file ds_config.json train.py --batch-size 4"
    )
    study = {"name": "accelerate", "command": command, **SHORT}
    if not mapped:
        study["autotuning"] = {"tuner_num_trials": 2}
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump(study))
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "accelerate", "--devices", "cpu:1")
    ended = states(dsopt, "accelerate")
    assert ended["baseline"] == "measured"
    assert ended["z2_gas1_tmbspg8"] == ("measured" if mapped else "infeasible")
    if not mapped:
        shown = dsopt("study", "show", "accelerate")
        assert "the script fed batches of 4, as in your own run, although its configuration says 8" in shown
    command = (Path(dsopt.cwd) / "autotuning_results" / "z2_gas1_tmbspg8" / "cmd.txt").read_text()
    assert ("--batch-size 8" in command) == mapped


def test_ranks_and_a_flag_of_the_script_are_dimensions(dsopt: Dsopt) -> None:
    shutil.copy(TINY_GPT, dsopt.cwd / "train.py")
    ds_config = {
        "train_micro_batch_size_per_gpu": [4],
        "optimizer": OPTIMIZER,
        "zero_optimization": {"stage": 1},
        "autotuning": {"num_gpus": [1, 2], "metric": "forward", "tuner_type": " gridsearch"},
    }
    (dsopt.cwd / "ds_config.json").write_text(json.dumps(ds_config))
    command = "OMP_NUM_THREADS=1 torchrun --standalone train.py --layers 4 --deepspeed_config ds_config.json"
    study = {"command": command, "search": {"args": {"layers": ["4", "1"]}}, **SHORT}
    (dsopt.cwd / "ranks.yaml").write_text(yaml.safe_dump(study))
    dsopt("study", "create", "ranks.yaml")
    dsopt("worker", "ranks", "--devices", "cpu:2")
    summary = dsopt.json("study", "show", "ranks")
    assert (summary["metric"], summary["unit"]) == ("forward", "ms/step")
    ended = states(dsopt, "ranks")
    assert set(ended) == {
        "baseline", "z1_ng1_l1_gas1_tmbspg4", "z1_ng2_l4_gas1_tmbspg4", "z1_ng2_l1_gas1_tmbspg4"
    }  # fmt: skip
    assert set(ended.values()) == {"measured"}
    assert summary["model"]["num_params"] == summary["model"]["trainable_params"] > 1e6
    assert summary["model"]["flops_per_step"] > 1e6
    best = dsopt.json("study", "best", "ranks")  # one layer takes a quarter of the time of four
    assert "_l1_" in best["comparison"]["best"]
    assert "--layers 1" in best["command"]
    assert "--layers" in {change["key"] for change in dsopt.json("diff", "ranks")["changes"]}
