"""Programs of others that come to a worker's GPUs: what runs show then may be theirs."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsopt.launch.devices import DevicePool
from dsopt.launch.gpus import Gpu, User
from dsopt.launch.processes import is_of_a_run
from dsopt.launch.strangers import Strangers, Visits
from dsopt.protocol.run_dir import RunDir
from tests.conftest import Dsopt
from tests.lagging.rig import build_nvml, gpu_line
from tests.studies import baseline_ends, check_nothing_lost_nothing_doubled, until, wait_for_a_run, write_study
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


@pytest.mark.slow
def test_a_run_that_somebody_disturbs_counts_for_nothing_and_his_end_is_waited_for(
    dsopt: Dsopt, gpus: Path, stranger: int
) -> None:
    worker = dsopt.start("worker", "simulated")
    wait_for_a_run(dsopt.cwd)
    use(gpus, stranger)
    said = f"Waiting for devices: GPU 1 is used by process {stranger} (sleep, user "
    until_said(worker, said)
    assert baseline_ends(dsopt.environment["DSOPT_STORAGE"])[0] == ("cancelled", "shared")
    assert dsopt.json("study", "show", "simulated")["runs"][0]["message"].startswith("GPU 1 is used by process")
    use(gpus)
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt)
    assert ("measured", None) in baseline_ends(dsopt.environment["DSOPT_STORAGE"])


@pytest.mark.slow
def test_somebody_who_comes_and_goes_within_one_step_is_seen(dsopt: Dsopt, gpus: Path, stranger: int) -> None:
    """His process had most of the memory; the run then ran out of it, and its size was ruled out."""
    dsopt.environment["SIMULATED_CLOCK"] = "500"  # steps of seven seconds
    write_study(dsopt.cwd, name="slow", autotuning={"start_profile_step": 1, "end_profile_step": 3})
    dsopt("study", "create", "study.yaml")
    worker = dsopt.start("worker", "slow")
    until(lambda: any('"step"' in log.read_text() for log in dsopt.cwd.glob("autotuning_results/*/events-rank0.jsonl")))
    use(gpus, stranger)
    time.sleep(6.5)  # a look every two seconds, on a machine that may be busy
    use(gpus)
    until(lambda: baseline_ends(dsopt.environment["DSOPT_STORAGE"])[0] != ("running", None), seconds=120.0)
    assert baseline_ends(dsopt.environment["DSOPT_STORAGE"])[0] == ("cancelled", "shared")
    worker.terminate()
    worker.communicate(timeout=60)


@pytest.mark.slow
def test_a_process_that_has_just_ended_disturbs_nobody(dsopt: Dsopt, gpus: Path, stranger: int) -> None:
    """The driver may list it a moment longer."""
    worker = dsopt.start("worker", "simulated")
    wait_for_a_run(dsopt.cwd)
    use(gpus, stranger)
    use(gpus)
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    assert baseline_ends(dsopt.environment["DSOPT_STORAGE"])[0] == ("measured", None)


@pytest.mark.slow
def test_gpus_that_are_named_though_somebody_uses_them_are_used(dsopt: Dsopt, gpus: Path, stranger: int) -> None:
    use(gpus, stranger)
    refused = dsopt.start("worker", "simulated")
    assert "GPU 1 is used by process" in refused.communicate(timeout=60)[0]
    assert refused.returncode == 1
    worker = dsopt.start("worker", "simulated", "--devices", "0,1")
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt)


# what is at the beginning of a process's environment when it has changed its title, as setproctitle does
CHANGES_ITS_TITLE = """
import ctypes, os, sys, time
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
began, until = int(fields[47]), int(fields[48])  # of the environment, by proc(5)
ctypes.memset(began, 0, until - began)
print("done", flush=True)
time.sleep(600)
"""


def test_processes_of_a_run_that_have_changed_their_titles_are_no_strangers(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path, "run")
    environment = {**os.environ, "DSOPT_RUN_DIR": str(run_dir.path)}
    with run_dir.stdout.open("wb") as log:
        command = [sys.executable, "-c", CHANGES_ITS_TITLE]
        with subprocess.Popen(command, env=environment, stdout=log) as process:
            until(lambda: run_dir.stdout.read_bytes())
            assert is_of_a_run(process.pid)
            process.kill()
    with subprocess.Popen([sys.executable, "-c", CHANGES_ITS_TITLE], stdout=subprocess.PIPE) as process:
        assert not is_of_a_run(process.pid)
        process.kill()


@pytest.mark.parametrize(("sees_all", "strangers"), [(True, [0]), (False, [])])
def test_in_a_container_numbers_of_nobody_may_be_the_containers_own(
    monkeypatch: pytest.MonkeyPatch, sees_all: bool, strangers: list[int]
) -> None:
    user = User(pid=2**22 + 1, ticks=None, text="process 4194305 of another container")
    monkeypatch.setattr("dsopt.launch.strangers.installed_gpus", lambda: [Gpu(index=0, users=(user,))])
    monkeypatch.setattr("dsopt.launch.strangers._is_first_namespace", lambda: sees_all)
    assert list(Strangers(DevicePool(kind="gpu", indices=(0,))).on([0])) == strangers


def test_somebody_who_changes_his_title_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter("abc")
    monkeypatch.setattr(
        "dsopt.launch.strangers.installed_gpus",
        lambda: [Gpu(index=0, users=(User(pid=7, ticks=1.0, text=f"process 7 ({next(names)})"),))],
    )
    strangers = Strangers(DevicePool(kind="gpu", indices=(0,)))
    assert not strangers.on([0], stayed=0.05)
    time.sleep(0.1)
    assert strangers.on([0], stayed=0.05, age=0.0)


def test_nobody_waits_for_a_driver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a fault of a GPU. What it says late counts."""
    answers, told = threading.Event(), list[str]()
    user = User(pid=7, ticks=1.0, text="process 7")

    def ask() -> list[Gpu]:
        answers.wait()
        return [Gpu(index=0, users=(user,))]

    monkeypatch.setattr("dsopt.launch.strangers.installed_gpus", ask)
    monkeypatch.setattr("dsopt.launch.strangers.SILENT_SECONDS", 0.3)
    strangers = Strangers(DevicePool(kind="gpu", indices=(0,)), lambda: told.append("silent"))
    visits = Visits(strangers, [0])
    assert not strangers.on([0], patience=0.2)
    began = time.monotonic()
    while not told:
        assert not strangers.on([0], patience=0.2)
        assert not visits.look()
    assert time.monotonic() - began < 60.0
    assert told == ["silent"]
    answers.set()
    until(lambda: strangers.on([0], patience=0.0))
    answers.clear()
    until(lambda: not strangers.on([0], age=0.0, patience=0.0))  # who knows whether that one is still there
    assert told == ["silent", "silent"]


def test_a_look_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    user = User(pid=7, ticks=1.0, text="process 7")
    fails = iter([True])

    def ask() -> list[Gpu]:
        if next(fails, False):
            raise OSError("no more files")
        return [Gpu(index=0, users=(user,))]

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr("dsopt.launch.strangers.installed_gpus", ask)
    strangers = Strangers(DevicePool(kind="gpu", indices=(0,)))
    assert not strangers.on([0])
    assert strangers.on([0], age=0.0)


def test_where_no_thread_can_be_started_nobody_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's own processes may have taken all that a container may have."""
    user = User(pid=7, ticks=1.0, text="process 7")
    monkeypatch.setattr("dsopt.launch.strangers.installed_gpus", lambda: [Gpu(index=0, users=(user,))])
    strangers = Strangers(DevicePool(kind="gpu", indices=(0,)))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _cannot_start)
        assert not Visits(strangers, [0]).at_the_end()
    assert strangers.on([0])


def _cannot_start(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.slow
def test_a_worker_ends_though_the_driver_does_not_answer(dsopt: Dsopt, gpus: Path) -> None:
    worker = dsopt.start("worker", "simulated")
    wait_for_a_run(dsopt.cwd)
    pipe = gpus.with_suffix(".new")
    os.mkfifo(pipe)  # the driver waits for whoever writes to it
    pipe.replace(gpus)
    until(lambda: baseline_ends(dsopt.environment["DSOPT_STORAGE"])[0] == ("measured", None))
    worker.terminate()
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 130, output
