"""Somebody moves the database away while a worker works, and back, or puts an older copy in its place."""

import time
from pathlib import Path

import pytest

from tests.conftest import Dsopt
from tests.studies import check_nothing_lost_nothing_doubled, write_study
from tests.worker.test_ending_while_waiting import until_said
from tests.worker.test_protocol_runs import wait_for_a_run

pytestmark = pytest.mark.slow


def test_a_database_that_was_moved_is_waited_for(dsopt: Dsopt, tmp_path: Path) -> None:
    write_study(tmp_path)
    dsopt("study", "create", "study.yaml")
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(tmp_path)
    (tmp_path / "storage").rename(tmp_path / "elsewhere")
    until_said(worker, "unable to open database file. Check that the file and its folder are there")
    assert not (tmp_path / "storage").exists()
    (tmp_path / "elsewhere").rename(tmp_path / "storage")
    output, _ = worker.communicate(timeout=200)
    assert (worker.returncode, output.count("Going on.")) == (0, 1), output
    check_nothing_lost_nothing_doubled(dsopt)


def test_work_goes_on_from_an_older_copy(dsopt: Dsopt, tmp_path: Path) -> None:
    """What runs by that copy has ended long ago, and its worker lives: nobody else gives it back."""
    write_study(tmp_path)
    dsopt("study", "create", "study.yaml")
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    _wait_for_runs(tmp_path, 2)
    dsopt("db", "backup", "older.db")
    _wait_for_runs(tmp_path, 5)
    (tmp_path / "older.db").rename(tmp_path / "storage" / "dsopt.db")
    for ending in ("-wal", "-shm"):
        (tmp_path / "storage" / f"dsopt.db{ending}").unlink(missing_ok=True)
    output, _ = worker.communicate(timeout=200)
    assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt)


def _wait_for_runs(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len([*folder.glob("autotuning_results/*/ds_config.json")]) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
