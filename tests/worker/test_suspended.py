"""Somebody suspends a worker with all that it runs, as Slurm, `docker pause` and shells do, and lets it go on."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from dsopt.launch.processes import processes_of
from dsopt.store.studies import Store
from tests.conftest import Dsopt
from tests.studies import check_nothing_lost_nothing_doubled, write_study

FEW = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": [0, 1]}}


def suspend(worker: subprocess.Popen[str], held: Path, then_held: str = "") -> None:
    """Suspends a worker and the run that is held, which has trained for a few steps; another one may be held then."""
    run_dir = held.parent / "autotuning_results" / held.read_text()
    events, deadline = run_dir / "events-rank0.jsonl", time.monotonic() + 60
    while not events.exists() or events.read_text().count('"step",') < 6:
        assert worker.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    others = [process.pid for process in processes_of(run_dir)]
    for pid in (worker.pid, *others):
        os.kill(pid, signal.SIGSTOP)
    held.write_text(then_held)
    time.sleep(4)
    for pid in (worker.pid, *others):
        os.kill(pid, signal.SIGCONT)


def test_a_run_that_was_suspended_says_nothing_of_its_candidate(dsopt: Dsopt) -> None:
    dsopt.environment["SIMULATED_CLOCK"] = "5"
    write_study(dsopt.cwd, ds_config=FEW, timeout_seconds=20)
    dsopt("study", "create", "study.yaml")
    (held := dsopt.cwd / "held").write_text("baseline")
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    suspend(worker, held)
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt)
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    first, again, *others = store.runs(store.get("simulated"))
    store.close()
    assert (first["candidate"], first["state"], first["reason"]) == ("baseline", "cancelled", "suspended")
    assert "the worker and its run were suspended for " in first["message"]
    assert (again["candidate"], again["state"]) == ("baseline", "measured")
    assert not [run for run in others if run["state"] == "cancelled"]


@pytest.mark.slow
def test_a_worker_that_is_suspended_again_and_again_ends(dsopt: Dsopt) -> None:
    """Slurm may give a node to jobs in turn."""
    dsopt.environment["SIMULATED_CLOCK"] = "5"
    write_study(dsopt.cwd, ds_config=FEW)
    dsopt("study", "create", "study.yaml")
    (held := dsopt.cwd / "held").write_text("baseline")
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    for then_held in (*(f"baseline.{number}" for number in range(2, 6)), ""):
        suspend(worker, held, then_held)
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 1, output
    assert "5 runs of baseline were suspended with this worker" in output
    del dsopt.environment["SIMULATED_CLOCK"]
    assert "is finished" in dsopt("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt)
