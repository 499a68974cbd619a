"""Runs on a device that lags behind its host: its clock and its memory count. None of this is tested on CUDA here."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from dsopt.experiment.outcome import Infeasible, Measured
from dsopt.study.space import Candidate
from tests.conftest import TINY_GPT, Dsopt
from tests.lagging import rig
from tests.real.test_experiment import CONFIG, run_here
from tests.studies import check_nothing_lost_nothing_doubled

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]

MIB = 2**20
OUTSIDE = 64 * MIB  # of a context, which the stand-in has from the start


@pytest.fixture
def lagging(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in rig.accelerator(gib=0.25).items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("lagging")
def test_time_is_the_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host has long gone on when a forward pass ends: by its clock that would be of some 0.2 ms."""
    monkeypatch.setenv("LAGGING_OP_SECONDS", "0.005")
    outcome = run_here(tmp_path, "trains")
    assert isinstance(outcome, Measured), outcome
    parts = [outcome.metric(name) for name in ("forward", "backward", "step")]
    assert all(part >= 5 for part in parts), parts
    assert sum(parts) <= 1.01 * outcome.metric("latency")


@pytest.mark.usefixtures("lagging")
def test_memory_is_the_allocators(tmp_path: Path) -> None:
    outcome = run_here(tmp_path, "trains", expected=Candidate(stage=0, micro_batch=4, gas=1))
    assert isinstance(outcome, Measured), outcome
    assert outcome.engine.device_memory_bytes == 256 * MIB
    assert outcome.outside_bytes == OUTSIDE
    assert outcome.activation_bytes == 4 * 64 * 4  # what the layer gives; its input was there before
    assert outcome.peak_memory_bytes % (2 * MIB) == 0  # whole segments
    assert 16 * outcome.engine.num_params <= outcome.peak_allocated_bytes <= outcome.peak_memory_bytes


@pytest.mark.usefixtures("lagging")
@pytest.mark.parametrize(
    ("rows", "limit_bytes", "is_too_much"),
    [
        (100_000, None, False),  # 24 MiB of inputs, twice as much with what comes of them
        (100_000, OUTSIDE + 40 * MIB, True),
        (500_000, None, True),
    ],
)
def test_out_of_memory_is_real(tmp_path: Path, rows: int, limit_bytes: int | None, is_too_much: bool) -> None:
    """By the device's capacity, and by a limit, which includes what torch does not count."""
    batch = {"config": {**CONFIG, "train_micro_batch_size_per_gpu": rows}, "script_args": f"--batch-size {rows}"}
    outcome = run_here(tmp_path, "trains", memory_limit_bytes=limit_bytes, **batch)
    if not is_too_much:
        assert isinstance(outcome, Measured), outcome
        return
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.reason == "oom"
    assert "Tried to allocate" in outcome.message


def test_a_study_on_two_gpus(dsopt: Dsopt, tmp_path: Path) -> None:
    """From the driver's library over leases to ranks: what a machine with GPUs does, on a stand-in for one."""
    dsopt.environment |= rig.machine(tmp_path, gpus=2, gib=0.5)
    shutil.copy(TINY_GPT, dsopt.cwd / "train.py")
    ds_config = {
        "train_micro_batch_size_per_gpu": [2, 4],
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "torch_adam": True}},
        "zero_optimization": {"stage": [1, 3], "reduce_bucket_size": 1_000_000},
        "autotuning": {"enabled": True},
    }
    (dsopt.cwd / "ds.json").write_text(json.dumps(ds_config))
    study = {
        "command": "deepspeed --num_gpus 2 train.py --layers=2 --deepspeed_config ds.json",
        "measurement": {"max_steps": 12, "max_seconds": 4},
        "confirmation": {"finalists": 1, "rounds": 1},
        "timeout_seconds": 150,
    }
    (dsopt.cwd / "tiny.yaml").write_text(yaml.safe_dump(study))
    dsopt("study", "create", "tiny.yaml")
    output = dsopt("worker", "tiny")
    assert "GPUs 0,1" in output
    check_nothing_lost_nothing_doubled(dsopt, "tiny")
    runs = dsopt.json("study", "show", "tiny")["runs"]
    assert {run["state"] for run in runs} == {"measured"}, runs
    assert all(run["peak_memory_bytes"] % (2 * MIB) == 0 for run in runs)
