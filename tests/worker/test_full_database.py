"""The disk of the database itself is full: workers wait for room, and lose nothing."""

import errno
from pathlib import Path

import pytest

from tests.conftest import Dsopt
from tests.studies import check_nothing_lost_nothing_doubled, write_study
from tests.worker.test_protocol_runs import wait_for_a_run

pytestmark = pytest.mark.slow


def fill(disk: Path) -> Path:
    """Writes a file until the disk takes no byte more."""
    rest = disk / "rest"
    with rest.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return rest


def test_a_full_disk_of_the_database_is_waited_for(tmp_path: Path, small_disk: Path) -> None:
    """Results are elsewhere. The run in hand ends meanwhile, and its figure is told when there is room."""
    dsopt = Dsopt(tmp_path, f"sqlite:///{small_disk}/dsopt.db")
    dsopt.environment["SIMULATED_SECONDS"] = "3"
    write_study(tmp_path)
    dsopt("study", "create", "study.yaml")
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(tmp_path)
    rest = fill(small_disk)
    assert worker.stdout is not None
    lines: list[str] = []
    while "Waiting: the database" not in (lines[-1] if lines else ""):
        lines.append(worker.stdout.readline())
        assert lines[-1], "".join(lines)
    assert "disk is full" in lines[-1] and "Free some space" in lines[-1]
    metrics = tmp_path / "autotuning_results" / "baseline" / "metrics.json"
    assert metrics.exists()
    rest.unlink()
    output, _ = worker.communicate(timeout=200)
    said = "".join(lines) + output
    assert worker.returncode == 0, said
    assert said.count("Waiting: the database") == said.count("Going on.") == 1
    check_nothing_lost_nothing_doubled(dsopt)
    runs = dsopt.json("study", "show", "simulated")["runs"]
    assert {run["state"] for run in runs} == {"measured"}
