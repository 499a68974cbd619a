"""Whole studies on a GPU when something dies there, comes beside it, or saves. On a stand-in, memory is not shared."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
import yaml

from dsopt.launch.devices import free_ports, visible_gpus
from dsopt.launch.program import path_with
from tests.conftest import SCRIPTS, TINY_GPT, Dsopt
from tests.lagging.rig import is_lagging
from tests.real.test_gpu import GPT
from tests.real.test_isolation import contents
from tests.studies import check_nothing_lost_nothing_doubled, wait_until_nothing_runs
from tests.worker.test_ending_while_waiting import until_said

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.xdist_group("real"),
    pytest.mark.skipif(not visible_gpus(), reason="no CUDA device"),
]

SHORT = {"measurement": {"max_steps": 12, "max_seconds": 4}, "confirmation": {"finalists": 1, "rounds": 1}}
CONFIG = {"optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "torch_adam": True}}}
BUCKETS = {"reduce_bucket_size": 5_000_000}
# takes nine tenths of what is free on the first GPU
TAKES_ALL = """
import time, torch
free, _ = torch.cuda.mem_get_info()
kept = torch.empty(int(0.9 * free), dtype=torch.uint8, device="cuda")
print("has it", flush=True)
time.sleep(600)
"""


def create(dsopt: Dsopt, script: Path, arguments: str, **changes: Any) -> None:
    """A study of a script that has two sizes and two stages to choose from."""
    shutil.copy(script, dsopt.cwd / "train.py")
    ds_config = {**CONFIG, "train_micro_batch_size_per_gpu": [2, 4], "zero_optimization": {**BUCKETS, "stage": [1, 2]}}
    (dsopt.cwd / "ds.json").write_text(json.dumps(ds_config))
    port = next(free_ports())  # of a training: on a stand-in, other tests go on beside this one
    command = f"deepspeed --num_gpus 1 --master_port {port} train.py {arguments} --deepspeed_config ds.json"
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump({"command": command, **SHORT, **changes}))
    dsopt("study", "create", "study.yaml")


def wait_for_steps(folder: Path) -> None:
    """Some run trains."""
    deadline = time.monotonic() + 150
    while not any('"event":"step"' in log.read_text().replace(" ", "") for log in folder.rglob("events-rank0.jsonl")):
        assert time.monotonic() < deadline, "no run trained"
        time.sleep(0.05)


def how_runs_ended(dsopt: Dsopt) -> set[tuple[str, str | None]]:
    """States and reasons."""
    return {(run["state"], run["reason"]) for run in dsopt.json("study", "show", "study")["runs"]}


def users_of_the_gpu() -> list[int]:
    """Processes on the first GPU, by its driver."""
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(visible_gpus()[0].index)
        return [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    finally:
        pynvml.nvmlShutdown()


@contextlib.contextmanager
def somebody() -> Iterator[int]:
    """A program that has most of the GPU's memory."""
    command = [sys.executable, "-u", "-c", TAKES_ALL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "has it\n"
            yield process.pid
        finally:
            process.kill()


def test_a_worker_is_killed_while_its_run_trains_and_another_goes_on(dsopt: Dsopt) -> None:
    create(dsopt, TINY_GPT, GPT.removeprefix("train.py "))
    killed = dsopt.start("worker", "study")
    wait_for_steps(dsopt.cwd)
    killed.kill()
    killed.communicate(timeout=60)
    wait_until_nothing_runs(dsopt.cwd)
    dsopt("worker", "study")
    check_nothing_lost_nothing_doubled(dsopt, "study")
    assert how_runs_ended(dsopt) == {("measured", None), ("failed", "lost")}


@pytest.mark.skipif(is_lagging(), reason="its memory is each process's own")
def test_what_runs_out_of_memory_beside_somebody_counts_for_nothing(dsopt: Dsopt) -> None:
    """His program comes while a run trains, and stays until the worker says that it waits for him."""
    create(dsopt, TINY_GPT, GPT.removeprefix("train.py "))
    worker = dsopt.start("worker", "study")
    wait_for_steps(dsopt.cwd)
    with somebody() as pid:
        assert pid in users_of_the_gpu()
        until_said(worker, f"is used by process {pid} (")
    output, _ = worker.communicate(timeout=400)
    assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt, "study")
    assert how_runs_ended(dsopt) == {("measured", None), ("cancelled", "shared")}


def test_a_script_that_saves_finds_its_files_as_they_were_and_the_training_goes_on_from_them(dsopt: Dsopt) -> None:
    create(dsopt, SCRIPTS / "saves.py", "--steps 1000")
    launcher = Path(sys.executable).with_name("deepspeed")
    own = {**CONFIG, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {**BUCKETS, "stage": 1}}
    (dsopt.cwd / "own.json").write_text(json.dumps(own))
    port = str(next(free_ports()))
    words = [launcher, "--num_gpus", "1", "--master_port", port, "train.py", "--deepspeed_config", "own.json"]
    words += ["--steps", "4"]
    environment = {**dsopt.environment, "PATH": path_with(os.environ, Path(sys.executable))}
    subprocess.run(words, cwd=dsopt.cwd, env=environment, check=True, capture_output=True)
    places = [dsopt.cwd / "ckpt", dsopt.cwd / "model.pt"]
    before = contents(*places)
    assert len(before) >= 4
    dsopt("worker", "study")
    assert contents(*places) == before
    assert how_runs_ended(dsopt) == {("measured", None)}
    best = (dsopt.cwd / "autotuning_results" / "cmd_optimal.txt").read_text().replace("--steps 1000", "--steps 8")
    trained = subprocess.run(best, shell=True, check=True, capture_output=True, text=True, env=environment)
    assert "begins at step 4" in trained.stdout
    assert (dsopt.cwd / "ckpt" / "global_step8").is_dir()
