"""Which processes belong to a run, however they hide it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dsopt.launch.process import Process
from dsopt.launch.processes import host_identity, kill_all, processes_of
from dsopt.protocol.presence import may_be_present
from dsopt.protocol.run_dir import RunDir
from tests.runs import launch
from tests.studies import until

# what setproctitle does: it takes the room of the environment for a longer title
HIDES = """
import ctypes, os, sys, time
fields = open("/proc/self/stat").read().rpartition(") ")[2].split()
begin, end = int(fields[47]), int(fields[48])
ctypes.memset(begin, 0, end - begin)
open("hidden", "w").close()
time.sleep(600)
"""


@pytest.fixture
def launcher(tmp_path: Path) -> str:
    """A launcher that starts its rank in a session of the rank's own, as torchrun does."""
    (tmp_path / "rank.py").write_text(HIDES)
    program = tmp_path / "deepspeed"
    program.write_text(f"#!/bin/sh\nsetsid {sys.executable} rank.py $OUTPUT &\nwait\n")
    program.chmod(0o755)
    return str(program)


def started(launcher: str, tmp_path: Path) -> tuple[RunDir, Process]:
    run_dir = RunDir.create(tmp_path, "r")
    process = Process(launch(f"{launcher} --num_gpus 1 t.py", cwd=tmp_path, run_dir=run_dir))
    until(lambda: (tmp_path / "hidden").exists())
    return run_dir, process


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_a_rank_that_overwrites_its_environment_ends_with_its_run(launcher: str, tmp_path: Path) -> None:
    run_dir, process = started(launcher, tmp_path)
    ranks = processes_of(run_dir.path)
    assert len(ranks) == 2
    process.kill()
    assert not any(map(is_alive, ranks))
    assert not may_be_present(run_dir, is_hidden=False)


def test_programs_that_write_to_logs_elsewhere_are_not_those_of_a_run(tmp_path: Path) -> None:
    """A database that somebody has altered may name any folder."""
    with (tmp_path / "stdout.log").open("w") as log, subprocess.Popen(["sleep", "60"], stdout=log) as other:
        assert processes_of(tmp_path) == []
        assert kill_all(tmp_path)
        assert other.poll() is None
        other.kill()


def test_such_a_rank_is_found_when_its_launcher_is_gone(launcher: str, tmp_path: Path) -> None:
    run_dir, process = started(launcher, tmp_path)
    process._started[0].kill()
    process._started[0].wait()
    [rank] = processes_of(run_dir.path)
    assert may_be_present(run_dir, is_hidden=False)
    assert kill_all(run_dir.path)
    assert not is_alive(rank)


def test_such_a_rank_with_a_log_of_its_own_ends_with_its_launcher(launcher: str, tmp_path: Path) -> None:
    Path(launcher).write_text(Path(launcher).read_text().replace("$OUTPUT", ">own.log 2>&1"))
    run_dir, process = started(launcher, tmp_path)
    ranks = processes_of(run_dir.path)
    assert len(ranks) == 2
    process.kill()
    assert not any(map(is_alive, ranks))


def test_a_process_whose_first_thread_has_ended_is_waited_for(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path, "r")
    ends_first_thread = (
        "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-c", ends_first_thread]) as process:
        rank = psutil.Process(process.pid)
        until(lambda: rank.status() == psutil.STATUS_ZOMBIE)
        assert kill_all(run_dir.path, also=[rank])
        assert process.wait(timeout=5) == -signal.SIGKILL


def test_a_run_asks_setproctitle_to_leave_the_environment(tmp_path: Path) -> None:
    assert launch(cwd=tmp_path).environment({})["SPT_NOENV"] == "1"


def test_others_that_read_a_log_do_not_belong_to_its_run(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path, "r")
    run_dir.stdout.touch()
    with subprocess.Popen(["tail", "-f", run_dir.stdout], stdout=subprocess.DEVNULL) as reader:
        assert processes_of(run_dir.path) == []
        reader.kill()


LOOKS = """
import os
import sys
from dsopt.launch.processes import is_gone, start_ticks
pid, dead = map(int, sys.argv[1:])
started = start_ticks(pid)
print(is_gone(pid, started), is_gone(pid, started + 1), is_gone(dead, 1.0))
os.setgroups([])  # root's group sees all processes
os.setgid(65534)
os.setuid(65534)
print(start_ticks(pid), is_gone(pid, started), is_gone(dead, 1.0))
"""


def test_a_process_of_another_user_that_the_machine_hides_is_not_gone() -> None:
    if os.geteuid():
        pytest.skip("only root may mount /proc anew and become another user")
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    command = ["unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh"]
    argv = [*command, sys.executable, "-c", LOOKS, str(os.getpid()), str(ended.pid)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if "mount:" in done.stderr:
        pytest.skip(f"this machine does not hide processes: {done.stderr}")
    assert done.stdout.split() == ["False", "True", "True", "None", "False", "True"], done.stderr


def test_a_process_of_another_time_namespace_is_not_judged() -> None:
    """The kernel tells it another start of the same process, which would count as gone."""
    look = "import sys; from dsopt.launch.processes import host_identity; print(host_identity() == sys.argv[1])"
    unshare = ["unshare", "--user", "--map-root-user", "--time", "--boottime", "1000", "--fork"]
    looked = subprocess.run([*unshare, sys.executable, "-c", look, host_identity()], capture_output=True, text=True)
    if looked.returncode:
        pytest.skip("this machine gives no time namespaces")
    assert looked.stdout == "False\n"
