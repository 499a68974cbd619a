"""Disks that take no files: what a worker waits for, and what it does not take for that."""

import contextlib
import errno
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dsopt.errors import DsoptError
from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Outcome
from dsopt.launch.passing import PassingError
from dsopt.store.studies import Store
from dsopt.worker import running
from dsopt.worker.disk import Room, unusable
from dsopt.worker.happenings import WorkerPaused, WorkerWentOn
from tests.conftest import Dsopt
from tests.studies import baseline_ends, write_study
from tests.worker.test_ending_while_waiting import until_said
from tests.worker.test_full_database import fill
from tests.worker.test_protocol_runs import wait_for_a_run

FULL = (errno.ENOSPC, errno.EDQUOT)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE])
def test_an_error_of_the_disk_is_no_candidates_fault(tmp_path: Path, number: int) -> None:
    error = OSError(number, os.strerror(number))
    mend = f"cannot be written to: {os.strerror(number).lower()}. Mend it"
    told = f"the disk of {tmp_path} {'is full. Make room on it, at least 16 MiB' if number in FULL else mend}"
    assert unusable(tmp_path, error) == told
    # the disk may have been mended before anybody looks
    assert unusable(tmp_path, said=f"rank 0: OSError: [Errno {number}] it says: '{tmp_path}/baseline/log'") == told


@pytest.mark.parametrize(
    "said",
    [
        "[Errno 30] Read-only file system: '/elsewhere/log'",
        "[Errno 2] No such file: '{folder}/log'",
        "OSError: [Errno 28] No space left on device: '/dev/shm/torch_1' Log: {folder}/run/stderr.log",
        "raised",
    ],
)
def test_a_scripts_own_mistake_is_its_own(tmp_path: Path, said: str) -> None:
    assert unusable(tmp_path, said=said.format(folder=tmp_path)) is None
    assert unusable(tmp_path / "not" / "yet" / "there", FileNotFoundError(errno.ENOENT, "no")) is None


def test_a_disk_that_only_reads_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    fields = [*found[:8], found.f_flag | os.ST_RDONLY, *found[9:]]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    assert "read-only file system" in (unusable(tmp_path) or "")


def test_a_disk_that_takes_no_more_files_is_waited_for(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=50", small_disk], check=True)
    assert unusable(small_disk) == (
        f"the disk of {small_disk} takes no more files, however much room it has. Remove some of its files"
    )
    subprocess.run(["mount", "-o", "remount,nr_inodes=1000", small_disk], check=True)
    assert unusable(small_disk) is None


def test_an_answer_that_is_an_error_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As of a network file system whose server has forgotten the folder."""

    def forgotten(_: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "statvfs", forgotten)
    assert "stale file handle" in (unusable(tmp_path) or "")


def test_a_file_system_that_does_not_say_its_size_is_not_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    fields = [*found[:2], 0, 0, 0, 0, 0, 0, *found[8:]]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    assert unusable(tmp_path) is None


def test_a_full_disk_to_offload_to_is_waited_for_and_no_configurations_fault(dsopt: Dsopt, small_disk: Path) -> None:
    why = f"the disk of {small_disk} is full. Make room on it, at least 256 MiB"
    offload = {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": str(small_disk)}}
    write_study(dsopt.cwd, ds_config={"train_micro_batch_size_per_gpu": 4, "zero_optimization": offload})
    dsopt("study", "create", "study.yaml")
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    until_said(worker, why)
    time.sleep(2)
    [run] = dsopt.json("study", "show", "simulated")["runs"]
    assert (run["candidate"], run["state"], run["message"]) == ("baseline", "cancelled", why)
    worker.terminate()
    worker.communicate(timeout=60)
    assert worker.returncode == 130


@pytest.mark.slow
def test_a_run_that_fails_where_the_disk_was_full_for_a_while_counts_for_nothing(
    tmp_path: Path, small_disk: Path
) -> None:
    """Its log and what it told may be lost with it. A run that fails without that is the configuration's."""
    dsopt = Dsopt(small_disk, f"sqlite:///{tmp_path}/dsopt.db")
    dsopt.environment |= {"SIMULATED_SECONDS": "6", "SIMULATED_FAILURES": "baseline:0"}
    write_study(small_disk)
    dsopt("study", "create", "study.yaml")
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(small_disk)
    rest = fill(small_disk)
    time.sleep(3)
    rest.unlink()
    until_said(worker, "crash: rank 0: RuntimeError")
    worker.terminate()
    worker.communicate(timeout=60)
    ended = baseline_ends(dsopt.environment["DSOPT_STORAGE"])[:2]
    assert ended == [("cancelled", "no_room"), ("failed", "crash")]


def test_a_folder_that_goes_while_its_run_is_recorded_ends_the_run_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A share that was away for a moment ended the worker, with its other runs."""
    run_dir = tmp_path / "baseline"
    run_dir.mkdir()

    def recorded(*_: object) -> running.Ended:
        shutil.rmtree(run_dir)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{run_dir}/metrics.json")

    monkeypatch.setattr(running, "_run", recorded)
    assignment = cast(Any, SimpleNamespace(run_dir=SimpleNamespace(path=run_dir)))
    ended = running.run(assignment, cast(Any, None), lambda _: None)
    assert ended.error is None
    assert ended.outcome == Cancelled(message=f"somebody has removed {run_dir} while the run went on", reason="removed")
    run_dir.mkdir()
    monkeypatch.setattr(running, "_run", lambda *_: (_ for _ in ()).throw(PermissionError(errno.EACCES, "no")))
    assert isinstance(running.run(assignment, cast(Any, None), lambda _: None).error, PermissionError)


def test_room_is_waited_for_on_the_disk_that_lacks_it(small_disk: Path, tmp_path: Path) -> None:
    told: list[object] = []
    room = Room(tmp_path, told.append)
    room.waits_for(small_disk)
    assert not room.is_there()
    subprocess.run(["mount", "-o", "remount,size=400m", small_disk], check=True)
    assert room.is_there()
    subprocess.run(["mount", "-o", "remount,size=40m", small_disk], check=True)
    assert room.is_there()
    why = f"the disk of {small_disk} is full. Make room on it, at least 256 MiB"
    assert told == [WorkerPaused(why=why), WorkerWentOn()]


@pytest.mark.parametrize(
    ("error", "known", "expected"),
    [
        (DsoptError("no folder"), None, Infeasible(reason="invalid_config", message="no folder")),
        (DsoptError("no folder"), {}, Failed(reason="machine", message="no folder", retryable=True)),
        (PassingError("broken"), None, Failed(reason="machine", message="broken", retryable=True)),
    ],
)
def test_whose_fault_a_disk_is_that_cannot_be_offloaded_to(
    tmp_path: Path, error: DsoptError, known: object, expected: Outcome
) -> None:
    """Where a run of the study has offloaded, or the system says that it is so now, it is the machine's."""
    spec = SimpleNamespace(cwd=str(tmp_path))
    assignment = SimpleNamespace(study=SimpleNamespace(spec=spec), history=SimpleNamespace(aio=known))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "_offload_folder", lambda _: tmp_path)
        assert running._not_offloaded(cast(Any, assignment), error).outcome == expected


def test_a_database_on_a_disk_that_is_full_says_so(small_disk: Path) -> None:
    """Who reads it needs a file beside it, which cannot be made."""
    url = f"sqlite:///{small_disk}/dsopt.db"
    Store.open(url, make=True).close()
    with contextlib.suppress(OSError), (small_disk / "much").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    with pytest.raises(DsoptError, match=r"Disk I/O error. Its disk may be full or broken\."):
        Store.open(url)
