"""The real training that `dsopt run` starts: its devices, and the signals that are meant for it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dsopt.errors import DsoptError
from dsopt.launch import foreground
from dsopt.launch.device_locks import DeviceLocks, release, reserve, without_reserved
from dsopt.launch.devices import DevicePool
from dsopt.launch.process_tree import ProcessTree
from dsopt.launch.processes import is_alive
from dsopt.launch.trainings import Mark
from dsopt.study.command import LaunchCommand
from dsopt.worker import final_training
from tests.studies import until

GPUS = DevicePool(kind="gpu", indices=(0, 1, 2), uuids={0: "GPU-a", 1: "GPU-b", 2: "GPU-c"})
TRAINS = """
import signal
import sys
from pathlib import Path
from dsopt.launch.device_locks import reserve
from dsopt.launch.devices import DevicePool
from dsopt.launch.foreground import train
from dsopt.launch.trainings import Mark
from dsopt.study.command import LaunchCommand

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what runs the tests may ignore it
mark = Mark(script="t.py")
files = reserve(DevicePool(kind="cpu", indices=(0,)), "elsewhere", mark)
sys.exit(train(LaunchCommand.parse(sys.argv[1] + " --num_gpus 1 t.py", "test"), Path.cwd(), files, mark, print))
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSOPT_DEVICE_LOCKS", str(tmp_path / "locks"))


@pytest.fixture
def training(tmp_path: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A program that trains as `dsopt run` does. Its training ends with 7 if somebody asks it to, and else does not."""
    program = tmp_path / "deepspeed"
    program.write_text(
        f"#!{sys.executable}\nimport os, signal, sys, time\n"
        "for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):\n"
        "    signal.signal(number, lambda number, _: sys.exit(7 if number == signal.SIGTERM else number + 100))\n"
        "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    program.chmod(0o755)
    with subprocess.Popen([sys.executable, "-c", TRAINS, program], cwd=tmp_path, start_new_session=True) as process:
        until(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text())
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 7), (signal.SIGUSR1, 110), (signal.SIGHUP, 101), (signal.SIGINT, 102)],
    ids=["TERM", "USR1", "HUP", "INT"],
)
def test_a_training_hears_of_its_end(training: "subprocess.Popen[bytes]", number: int, code: int) -> None:
    """A scheduler tells the process that it has started, which is dsopt."""
    training.send_signal(number)
    assert training.wait(timeout=30) == code


def test_a_signal_as_a_training_starts_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "deepspeed"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)

    def started(pid: int) -> ProcessTree:
        signal.raise_signal(signal.SIGTERM)
        return ProcessTree(pid)

    monkeypatch.setattr(foreground, "ProcessTree", started)
    command = LaunchCommand.parse(f"{program} --num_gpus 1 t.py", "test")
    assert foreground.train(command, tmp_path) == 128 + signal.SIGTERM


def test_no_run_begins_on_the_devices_of_a_training(training: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    slots = DevicePool(kind="cpu", indices=(0, 1))
    assert without_reserved(slots).indices == (1,)
    training.kill()
    training.wait()
    assert without_reserved(slots).indices == (1,)  # it goes on without dsopt
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    until(lambda: without_reserved(slots).indices == (0, 1))


def test_gpus_are_kept_by_what_identifies_them() -> None:
    files = reserve(DevicePool(kind="gpu", indices=(5,), uuids={5: "GPU-b"}), "elsewhere", Mark(script="t.py"))
    assert without_reserved(GPUS).indices == (0, 2)
    for file in files:
        os.close(file)
    assert without_reserved(GPUS) == GPUS


def test_a_training_waits_for_another(training: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    """Also for one whose dsopt was killed: who typed the command again had two, with the same checkpoints."""
    slots, told = DevicePool(kind="cpu", indices=(0, 1)), list[str]()
    locks = DeviceLocks("mine", "mine")
    training.kill()
    training.wait()
    assert final_training._files_of(locks, slots, "here", Mark(script="t.py"), told.append) is None
    assert told == ["another training that dsopt has started, in elsewhere, has CPU slot 0"]
    assert without_reserved(slots).indices == (1,)  # it has kept nothing meanwhile
    DeviceLocks("another", "another").hold(slots)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    until(lambda: without_reserved(slots).indices == (0, 1))


def test_a_training_that_waits_for_workers_of_another_database_lets_them_work() -> None:
    slots, told = DevicePool(kind="cpu", indices=(0, 1)), list[str]()
    locks, others = DeviceLocks("mine", "mine"), DeviceLocks("another", "another")
    others.hold(DevicePool(kind="cpu", indices=(1,)))
    assert final_training._files_of(locks, slots, "here", Mark(script="t.py"), told.append) is None
    assert told == ["workers on another database use 2 CPU slots"]
    assert without_reserved(slots) == slots
    others.hold(slots)  # it has not locked the first either
    others.close()
    files = final_training._files_of(locks, slots, "here", Mark(script="t.py"), told.append)
    assert files
    assert without_reserved(slots).indices == ()
    for file in files:
        os.close(file)
    locks.close()


LEAVES_A_RANK = """#!{python}
import os, subprocess, sys, time
open("pids", "a").write(str(os.getpid()) + " ")
if "--rank" in sys.argv:
    open("rank", "w").write(str(os.getpid()))
elif "--server" not in sys.argv:
    # without its locks, and in sessions of their own, as torchrun starts ranks; and what stays for good
    subprocess.Popen([sys.executable, sys.argv[0], "t.py", "--rank"], start_new_session=True)
    subprocess.Popen([sys.executable, sys.argv[0], "--server"], start_new_session=True)
time.sleep(600)
"""


@pytest.fixture
def rank(tmp_path: Path) -> "Iterator[tuple[subprocess.Popen[str], int]]":
    """A program that trains as `dsopt run` does, and the rank that its launcher has started."""
    program = tmp_path / "deepspeed"
    program.write_text(LEAVES_A_RANK.format(python=sys.executable))
    program.chmod(0o755)
    command = [sys.executable, "-u", "-c", TRAINS, program]
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, text=True) as process:
        until(lambda: (tmp_path / "pids").is_file() and len((tmp_path / "pids").read_text().split()) == 3)
        yield process, int((tmp_path / "rank").read_text())
        for pid in [process.pid, *map(int, (tmp_path / "pids").read_text().split())]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("killed", ["the launcher", "dsopt, then the launcher"])
def test_a_rank_that_has_lost_its_launcher_keeps_its_devices(
    rank: "tuple[subprocess.Popen[str], int]", killed: str
) -> None:
    process, pid = rank
    slots = DevicePool(kind="cpu", indices=(0, 1))
    launcher = psutil.Process(process.pid).children()[0]
    if killed == "the launcher":
        launcher.kill()
        assert process.stdout is not None
        assert f"ranks of it go on: processes {pid}. Ctrl-C ends them." in process.stdout.readline()
    else:
        process.kill()
        process.wait()
        launcher.kill()
        until(lambda: not is_alive(launcher))
    assert without_reserved(slots).indices == (1,)
    os.kill(pid, signal.SIGKILL)
    if killed == "the launcher":
        assert process.wait(timeout=30) == 128 + signal.SIGKILL
    until(lambda: without_reserved(slots).indices == (0, 1))


def test_a_signal_reaches_a_rank_that_has_lost_its_launcher(rank: "tuple[subprocess.Popen[str], int]") -> None:
    process, pid = rank
    psutil.Process(process.pid).children()[0].kill()
    assert process.stdout is not None
    assert "ranks of it go on" in process.stdout.readline()
    process.terminate()
    assert process.wait(timeout=30) == 128 + signal.SIGKILL  # the launcher's own end
    assert not psutil.pid_exists(pid) or not is_alive(psutil.Process(pid))


def test_another_training_waits_for_ranks_that_nobody_waits_for(rank: "tuple[subprocess.Popen[str], int]") -> None:
    process, pid = rank
    launcher = psutil.Process(process.pid).children()[0]
    process.kill()
    process.wait()
    launcher.kill()
    until(lambda: not is_alive(launcher))
    slots = DevicePool(kind="cpu", indices=(0, 1))
    with pytest.raises(DsoptError, match="another training that dsopt has started, in elsewhere, has CPU slot 0"):
        reserve(slots, "here", Mark(script="t.py"))
    os.kill(pid, signal.SIGKILL)
    until(lambda: without_reserved(slots) == slots)
    release(reserve(slots, "here", Mark(script="t.py")))
    assert without_reserved(slots) == slots
