"""Programs of others that come to a worker's GPUs: what runs show then may be theirs."""

import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Dsopt
from tests.lagging.rig import build_nvml, gpu_line
from tests.studies import check_nothing_lost_nothing_doubled, wait_for_a_run, write_study
from tests.worker.test_ending_while_waiting import until_said


@pytest.fixture
def gpus(dsopt: Dsopt) -> Path:
    """The file that tells of two GPUs, in whose simulated runs it takes a second and a half to begin."""
    build_nvml(dsopt.cwd)
    file = dsopt.cwd / "gpus"
    dsopt.environment |= {"LD_LIBRARY_PATH": str(dsopt.cwd), "NVML_STUB": str(file), "SIMULATED_SECONDS": "1.5"}
    for name in ("CUDA_VISIBLE_DEVICES", "DS_ACCELERATOR"):
        dsopt.environment.pop(name, None)
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    use(file)
    return file


@pytest.fixture
def stranger() -> Iterator[int]:
    """A program that is no run of dsopt."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


def use(file: Path, *users: int) -> None:
    """Lets these processes be on the second GPU from now on."""
    new = file.with_suffix(".new")
    new.write_text("\n".join(["0", gpu_line("a"), gpu_line("b", *users)]))
    new.replace(file)


def ended(dsopt: Dsopt) -> list[tuple[str, str | None]]:
    """How attempts at the baseline ended, in their order."""
    path = dsopt.environment["DSOPT_STORAGE"].removeprefix("sqlite:///")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        query = "SELECT state, reason FROM dsopt_attempts WHERE candidate = 'baseline' ORDER BY started_at"
        found = connection.execute(query).fetchall()
    connection.close()
    return found


def test_a_run_that_somebody_disturbs_counts_for_nothing_and_his_end_is_waited_for(
    dsopt: Dsopt, gpus: Path, stranger: int
) -> None:
    worker = dsopt.start("worker", "simulated")
    wait_for_a_run(dsopt.cwd)
    use(gpus, stranger)
    said = f"Waiting for devices: GPU 1 is used by process {stranger} (sleep, user "
    until_said(worker, said)
    assert ended(dsopt)[0] == ("cancelled", "shared")
    assert dsopt.json("study", "show", "simulated")["runs"][0]["message"].startswith("GPU 1 is used by process")
    use(gpus)
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt)
    assert ("measured", None) in ended(dsopt)


def test_a_process_that_has_just_ended_disturbs_nobody(dsopt: Dsopt, gpus: Path, stranger: int) -> None:
    """The driver may list it a moment longer."""
    worker = dsopt.start("worker", "simulated")
    wait_for_a_run(dsopt.cwd)
    use(gpus, stranger)
    use(gpus)
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    assert ended(dsopt)[0] == ("measured", None)


def test_gpus_that_are_named_though_somebody_uses_them_are_used(dsopt: Dsopt, gpus: Path, stranger: int) -> None:
    use(gpus, stranger)
    refused = dsopt.start("worker", "simulated")
    assert "GPU 1 is used by process" in refused.communicate(timeout=60)[0]
    assert refused.returncode == 1
    worker = dsopt.start("worker", "simulated", "--devices", "0,1")
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt)
