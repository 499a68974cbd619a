"""The guard, which ends a run when its worker dies, whatever else the worker's program has started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dsopt.launch.guard import Guard
from dsopt.protocol.run_dir import RunDir

# a program that forks while a worker of its own works, and is killed; its fork lives on
WORKER = """
import os, signal, sys, time
from pathlib import Path
from dsopt.launch.guard import Guard
guard = Guard()
guard.watch(Path(sys.argv[1]), 29500)
if os.fork() == 0:
    time.sleep(60)
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_fork_of_the_workers_program_does_not_keep_its_guard_from_its_task(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path, "r")
    environment = {**os.environ, "DSOPT_RUN_DIR": str(run_dir.path)}
    with subprocess.Popen(["sleep", "60"], env=environment) as rank:
        worker = subprocess.Popen([sys.executable, "-c", WORKER, run_dir.path], start_new_session=True)
        assert worker.wait(timeout=30) == -9
        assert rank.wait(timeout=30) == -9
        os.killpg(worker.pid, 9)  # the fork


def test_a_guard_that_somebody_stopped_keeps_no_worker(tmp_path: Path) -> None:
    guard = Guard()
    guard.watch(RunDir.create(tmp_path, "r").path, 29500)
    guard._process.send_signal(signal.SIGSTOP)
    guard.close()
    assert guard._process.returncode == -signal.SIGKILL


def test_a_guard_ends_at_once_though_a_fork_has_its_pipe(tmp_path: Path) -> None:
    guard = Guard()
    guard.watch(RunDir.create(tmp_path, "r").path, 29500)
    assert guard._process.stdin is not None
    kept = os.dup(guard._process.stdin.fileno())  # as a fork has it that was made before the guard
    began = time.monotonic()
    guard.close()
    assert time.monotonic() - began < 10
    os.close(kept)
