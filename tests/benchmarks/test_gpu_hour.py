"""The hour with a GPU, rehearsed to its last line on a stand-in: nothing of it may fail for the first time there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import STUDIES
from tests.lagging import rig

# the first of a second group, beside the other real runs of `make test-slow`: either takes about as long
pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("hour")]

STUDY = {
    "name": "rehearsal",
    "cwd": str(STUDIES),
    "timeout_seconds": 120,
    "measurement": {"max_steps": 12, "max_seconds": 4},
    "confirmation": {"finalists": 1, "rounds": 1},
}
DS_CONFIG = {
    "train_micro_batch_size_per_gpu": [4, 1000],
    "gradient_accumulation_steps": [1],
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "torch_adam": True}},
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {
        "stage": 2, "reduce_bucket_size": 1_000_000,
        "offload_optimizer": {"device": ["none", "cpu"], "pin_memory": False},
    },
}  # fmt: skip


@pytest.fixture
def hour(tmp_path: Path):
    """Does one step of it and gives what it printed."""
    ds_config, grid = tmp_path / "ds.json", tmp_path / "study.yaml"
    ds_config.write_text(json.dumps(DS_CONFIG))
    command = f"deepspeed --num_gpus 1 tiny-gpt/train.py --layers 2 --deepspeed_config {ds_config}"
    grid.write_text(yaml.safe_dump({**STUDY, "command": command}))
    (tmp_path / "tests").mkdir()
    # pytest closes the folder that all its sessions share, in which servers of these tests here may be
    own = {"OMP_NUM_THREADS": "1", "PYTEST_DEBUG_TEMPROOT": str(tmp_path / "tests")}
    environment = {**os.environ, **own, **rig.machine(tmp_path, gpus=1, gib=0.5)}

    def step(name: str) -> str:
        command = [sys.executable, "-m", "benchmarks.gpu", name, tmp_path / "out", "--grid", grid, "--seconds", "1500"]
        command += ["--tries", "1"]  # others use the machine all the time
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return step


def test_each_step_leaves_what_it_found(hour, tmp_path: Path) -> None:
    hour("facts")
    facts = json.loads((tmp_path / "out" / "facts.json").read_text())
    assert [gpu["name"] for gpu in facts["gpus"]["found"]] == ["H200"]
    assert {"torch", "deepspeed"} <= facts["imports"].keys()

    tests = hour("tests")
    assert " passed" in tests
    assert " failed" not in tests

    recorded = hour("grid")
    assert "/4 z2_oonone_gas1_tmbspg1000: out of memory" in recorded
    assert re.search(r"/4 z2_oocpu_gas1_tmbspg4: [0-9.]+ samples/s", recorded)
    assert "4 launches; the same command does what is missing" in recorded

    assert "4 runs of 2 groups" in hour("models")

    tuned = hour("tune")
    assert "Study 'tuned' is finished." in tuned
    assert "The grid's best of 2 is " in tuned
    assert json.loads((tmp_path / "out" / "tune.json").read_text())["comparison"]["best"]
    assert int(hour("models").partition(" runs of ")[0]) > 4  # those of the tuning, too
