"""Comparisons with real runs: the table of DeepSpeed's documents, and a script that cannot do without DeepSpeed."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.conftest import SCRIPTS, TINY_GPT, Dsopt
from tests.studies import check_nothing_lost_nothing_doubled

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("hour")]  # beside the other real runs

OPTIMIZER = {"type": "AdamW", "params": {"lr": 3e-4, "torch_adam": True}}
WINDOW = {"start_profile_step": 3, "end_profile_step": 9}
SHORT = {
    "measurement": {"max_steps": 15, "max_seconds": 4, "race": False},
    "confirmation": {"finalists": 1, "rounds": 1},
}


def config(micro_batch: object) -> dict:
    return {"train_micro_batch_size_per_gpu": micro_batch, "optimizer": OPTIMIZER, "zero_optimization": {"stage": 1}}


def test_the_trainer_without_deepspeed_by_hand_and_tuned(dsopt: Dsopt) -> None:
    """The three columns of the tutorial's table: vanilla Hugging Face, hand-tuned, tuned."""
    shutil.copy(SCRIPTS / "finetune.py", dsopt.cwd)
    (dsopt.cwd / "ds.json").write_text(json.dumps(config([2, 16])))
    (dsopt.cwd / "hand.json").write_text(json.dumps(config(4)))
    command = (
        "deepspeed --num_gpus 1 finetune.py --deepspeed ds.json --output_dir out --use_cpu --max_steps 200 "
        "--per_device_train_batch_size 2 --report_to none --save_strategy no --disable_tqdm true --learning_rate 3e-4"
    )
    study = {"command": command, "autotuning": WINDOW, **SHORT}
    (dsopt.cwd / "hf.yaml").write_text(yaml.safe_dump(study))
    dsopt("study", "create", "hf.yaml")
    dsopt("worker", "hf", "--devices", "cpu:1")
    output = dsopt("compare", "hf", "--with", "hand-tuned=hand.json", "--devices", "cpu:1")
    check_nothing_lost_nothing_doubled(dsopt, "hf-compare")
    rows = {row["name"]: row for row in dsopt.json("study", "show", "hf-compare")["rows"]}
    sizes = {name: (row["with_deepspeed"], row["micro_batch"], row["ranks"], row["runs"]) for name, row in rows.items()}
    assert sizes == {
        "vanilla": (False, 2, 1, 1), "yours": (True, 2, 1, 1), "hand-tuned": (True, 4, 1, 1), "dsopt": (True, 16, 1, 1),
    }  # fmt: skip
    assert all(row["value"] > 0 and row["reason"] is None for row in rows.values())
    assert "As in DeepSpeed's documents:" in output
    run = dsopt.cwd / "autotuning_results" / "hf-compare" / "vanilla"
    events = [json.loads(line) for line in (run / "events-rank0.jsonl").read_text().splitlines()]
    assert [event["rows"] for event in events if event["event"] == "batch"] == [2]
    assert {event["samples"] for event in events if event["event"] == "step"} == {2}
    assert json.loads((run / "metrics.json").read_text())["engine"]["framework"] == "torch"
    assert "--deepspeed" not in (Path(run) / "cmd.txt").read_text()


def test_a_script_that_needs_deepspeed_is_a_row_that_says_so(dsopt: Dsopt) -> None:
    shutil.copy(TINY_GPT, dsopt.cwd / "train.py")
    (dsopt.cwd / "ds.json").write_text(json.dumps({**config(2), "autotuning": WINDOW}))
    output = dsopt(
        "compare", "--rounds", "1", "--devices", "cpu:1", "--",
        "deepspeed", "--num_gpus", "1", "train.py", "--layers", "2", "--deepspeed_config", "ds.json",
    )  # fmt: skip
    assert "\nvanilla: does not run without DeepSpeed: rank " in output
    assert "| vanilla       | no        | does not run |" in output
    assert "| yours         | ZeRO 1    |" in output
