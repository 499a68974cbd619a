"""The threads of a worker's lanes: whatever happens in one, its run has an end that the worker sees."""

import errno
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dsopt.experiment.outcome import Cancelled
from dsopt.launch import guard
from dsopt.worker.lanes import LaneThread
from tests.conftest import Dsopt
from tests.studies import STUDY, check_nothing_lost_nothing_doubled, wait_for_a_run, write_study


def test_a_machine_without_processes_for_a_guard_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    stub = SimpleNamespace(Popen=refuse, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(guard, "subprocess", stub)
    woken = threading.Event()
    lane = LaneThread(lambda: False, lambda: False, lambda _: None, woken.set)
    lane.give(cast(Any, None))
    assert woken.wait(60)
    assert lane.in_hand is not None
    assert lane.in_hand.ended is not None
    assert isinstance(lane.in_hand.ended.outcome, Cancelled)
    assert isinstance(lane.in_hand.ended.error, BlockingIOError)
    lane.close()
    lane.join()


@pytest.mark.slow
def test_a_disk_of_results_that_is_away_ends_the_worker_and_leaves_it_nothing(dsopt: Dsopt, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "disk")
    dsopt.environment["SIMULATED_SECONDS"] = "5"
    write_study(tmp_path, autotuning={**STUDY["autotuning"], "results_dir": "scratch/autotuning_results"})
    dsopt("study", "create", "study.yaml")
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(tmp_path / "scratch")
    (tmp_path / "disk").rename(tmp_path / "away")
    output, _ = worker.communicate(timeout=100)
    assert worker.returncode == 1, output
    assert "Nothing that was recorded is lost" in output
    (tmp_path / "away").rename(tmp_path / "disk")
    dsopt.environment["SIMULATED_SECONDS"] = "0.1"
    dsopt("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt)
