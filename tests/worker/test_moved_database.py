"""Somebody moves the database away while a worker works, and back, or puts an older copy in its place."""

import time
from pathlib import Path

import pytest

from dsopt.launch.processes import processes_of
from dsopt.protocol.run_dir import RunDir
from dsopt.store.studies import Store
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
    begun = [path for path in tmp_path.glob("autotuning_results/*") if (path / "ds_config.json").exists()]
    _wait_for_runs(tmp_path, 5)
    earlier = {*tmp_path.glob("autotuning_results/*")}
    _put_back(tmp_path)
    output, _ = worker.communicate(timeout=200)
    assert worker.returncode == 0, output
    later = {path for path in tmp_path.glob("autotuning_results/*") if RunDir(path).mark.exists()} - earlier
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    assert later and not [path for path in later if RunDir(path).is_of_another(store.identity)]
    store.close()
    check_nothing_lost_nothing_doubled(dsopt)
    counted = {run["run_dir"] for run in dsopt.json("study", "show", "simulated")["runs"] if run["round"] == 0}
    assert counted >= set(map(str, begun[:2])), "what had run by that copy was measured, and ran again"


def test_a_run_that_an_older_copy_does_not_know_ends(dsopt: Dsopt, tmp_path: Path) -> None:
    """Others may have its devices: by that copy, they are free."""
    dsopt.environment["SIMULATED_SECONDS"] = "300"
    write_study(tmp_path)
    dsopt("study", "create", "study.yaml")
    first = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    _wait_for_runs(tmp_path, 1)
    second = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    while len(dsopt.json("workers")) < 2:
        time.sleep(0.1)
    dsopt("db", "backup", "older.db")
    first.terminate()
    first.communicate(timeout=60)
    deadline = time.monotonic() + 100
    while not (going := [path for path in tmp_path.glob("autotuning_results/baseline*") if processes_of(path)]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    [unknown] = going
    _put_back(tmp_path)
    while processes_of(unknown):
        assert time.monotonic() < deadline, "it goes on, on devices that others may have"
        time.sleep(0.1)
    assert second.poll() is None
    second.terminate()
    second.communicate(timeout=60)
    assert second.returncode == 130


def _put_back(folder: Path) -> None:
    """Puts the older copy in the place of the database."""
    (folder / "older.db").rename(folder / "storage" / "dsopt.db")
    for ending in ("-wal", "-shm"):
        (folder / "storage" / f"dsopt.db{ending}").unlink(missing_ok=True)


def _wait_for_runs(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len([*folder.glob("autotuning_results/*/ds_config.json")]) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
