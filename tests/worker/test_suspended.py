"""Somebody suspends a worker with all that it runs, as Slurm, `docker pause` and shells do, and lets it go on."""

import os
import signal
import time

from dsopt.launch.processes import processes_of
from dsopt.store.studies import Store
from tests.conftest import Dsopt
from tests.studies import check_nothing_lost_nothing_doubled, write_study

FEW = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": [0, 1]}}


def test_a_run_that_was_suspended_says_nothing_of_its_candidate(dsopt: Dsopt) -> None:
    dsopt.environment["SIMULATED_CLOCK"] = "5"
    write_study(dsopt.cwd, ds_config=FEW, timeout_seconds=20)
    dsopt("study", "create", "study.yaml")
    baseline = dsopt.cwd / "autotuning_results" / "baseline"
    events, deadline = baseline / "events-rank0.jsonl", time.monotonic() + 60
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    while not events.exists() or events.read_text().count('"step",') < 6:
        assert worker.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    stopped = [worker.pid, *(process.pid for process in processes_of(baseline))]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(4)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt)
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    first, again, *others = store.runs(store.get("simulated"))
    store.close()
    assert (first["candidate"], first["state"]) == ("baseline", "cancelled")
    assert "the worker and its run were suspended for " in first["message"]
    assert (again["candidate"], again["state"]) == ("baseline", "measured")
    assert not [run for run in others if run["state"] == "cancelled"]
