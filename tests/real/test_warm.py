"""Ranks that are forked from a process with their imports are what ranks are that were started by themselves."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from dsopt.experiment.lane import Lane
from dsopt.experiment.outcome import Infeasible, Measured, Outcome
from dsopt.launch.devices import free_ports
from dsopt.launch.launch import Launch
from dsopt.launch.leftovers import remove_shared_memory
from dsopt.launch.process import Process
from dsopt.launch.processes import processes_of
from dsopt.protocol.run_dir import RunDir
from dsopt.study.command import LaunchCommand
from dsopt.study.spec import MeasurementBudget
from tests.conftest import SCRIPTS
from tests.real.test_experiment import CONFIG, knows
from tests.runs import launch, rules

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]

RULES = rules(measurement=MeasurementBudget(max_steps=12), expected=None, timeout_seconds=120)

# A worker of its own: it learns what `import torch` imports, forks two ranks that hang, says so, and waits.
WORKER = """
import json, sys, time
from pathlib import Path
from dsopt.launch.guard import Guard
from dsopt.launch.process import Process
from tests.real.test_experiment import knows
from tests.real.test_warm import launch_of
folder = Path(sys.argv[1])
warm = knows("torch", folder, print)
launch = launch_of(folder, "behaves.py hangs")
guard = Guard()
guard.watch(launch.run_dir.path, launch.port)
process = Process(launch, forked=warm)
servers = [server._process.pid for server in warm._servers]
print(json.dumps(servers + [rank.pid for rank in process._started]), flush=True)
time.sleep(600)
"""


def launch_of(tmp_path: Path, typed: str, **changes: object) -> Launch:
    """A launch of one of our scripts on two ranks, its configuration in the run directory."""
    run_dir = RunDir.create(tmp_path, "run")
    run_dir.write_json(run_dir.ds_config, CONFIG)
    script, _, arguments = typed.partition(" ")
    command = f"A='b c' OMP_NUM_THREADS=1 deepspeed --num_gpus 2 {SCRIPTS / script} {arguments} --deepspeed_config"
    return launch(
        f"{command} {run_dir.ds_config}",
        cwd=tmp_path,
        run_dir=run_dir,
        port=next(free_ports()),
        start="warm",
        **changes,
    )


def ends(condition, seconds: float = 15) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_a_forked_rank_is_what_a_started_one_is(tmp_path: Path) -> None:
    why: list[str] = []
    warm = knows("deepspeed", tmp_path, why.append)
    runs = []
    for starter in (None, warm, warm):
        launch = launch_of(tmp_path, "tells.py --draw --flag= -v")
        process = Process(launch, forked=starter)
        assert ends(lambda p=process: p.exit_code() is not None, 60)
        process.kill()
        assert process.exit_code() == 0, launch.run_dir.stderr.read_text()
        assert warm.has_forked(launch.run_dir) is (starter is warm), why
        told = [(launch.run_dir.path / f"told-{rank}.json").read_text() for rank in (0, 1)]
        own = [(str(launch.run_dir.path), "RUN"), (str(launch.port), "PORT")]
        for name, stands_for in own:
            told = [text.replace(name, stands_for) for text in told]
        runs.append([json.loads(text) for text in told])
    warm.close()
    drawn = [tuple(rank.pop("drawn")) for run in runs for rank in run]
    assert all(len(set(values)) == len(values) for values in zip(*drawn, strict=True)), drawn
    directly, first, second = runs
    assert directly[0]["environment"]["LOCAL_RANK"] == "0"
    assert first == directly
    assert second == directly


@pytest.mark.slow
def test_whoever_is_killed_nothing_is_left(tmp_path: Path) -> None:
    why: list[str] = []
    warm = knows("torch", tmp_path, why.append)
    launch = launch_of(tmp_path, "behaves.py hangs")
    process = Process(launch, forked=warm)
    ranks = [rank.pid for rank in process._started]
    assert sorted(p.pid for p in processes_of(launch.run_dir.path)) == sorted(ranks)
    assert process.exit_code() is None
    os.kill(ranks[1], signal.SIGKILL)
    assert ends(lambda: process.exit_code() == -signal.SIGKILL)
    process.kill()
    assert processes_of(launch.run_dir.path) == []

    launch = launch_of(tmp_path, "behaves.py hangs")
    process = Process(launch, forked=warm)
    assert warm.has_forked(launch.run_dir)
    for server in warm._servers:
        os.kill(server._process.pid, signal.SIGKILL)
        server._process.wait()
    assert process.exit_code() is None  # the run goes on
    assert len(processes_of(launch.run_dir.path)) == 2
    process.terminate()
    assert process.exit_code() != 0
    assert processes_of(launch.run_dir.path) == []
    launch = launch_of(tmp_path, "tells.py")
    process = Process(launch, forked=warm)
    assert ends(lambda: process.exit_code() == 0)
    process.kill()
    assert not warm.has_forked(launch.run_dir)
    assert len(why) == 1


@pytest.mark.slow
def test_a_killed_worker_leaves_neither_ranks_nor_the_process_they_were_forked_from(tmp_path: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    pids = json.loads(worker.stdout.readline())
    assert len(pids) == 4
    assert all(psutil.pid_exists(pid) for pid in pids)
    worker.kill()
    worker.communicate()
    assert ends(lambda: not any(psutil.pid_exists(pid) for pid in pids)), pids


def run(tmp_path: Path, how: str, lane: Lane, **changes: object) -> tuple[Outcome, bool]:
    """What came of a run, and whether its ranks were forked."""
    launch = launch_of(tmp_path, f"behaves.py {how}", **changes)
    outcome = lane.run(launch, RULES, lambda progress: None)
    assert processes_of(launch.run_dir.path) == []
    assert remove_shared_memory(launch.port) == []
    return outcome, lane._forked.has_forked(launch.run_dir)


def test_imports_are_learned_from_the_first_run_and_memory_is_limited_in_ranks_alone(tmp_path: Path) -> None:
    why: list[str] = []
    lane = Lane(lambda: False, why.append)
    first, was_forked = run(tmp_path, "trains", lane)
    assert isinstance(first, Measured), first
    assert not was_forked
    hogging, was_forked = run(tmp_path, "hogs", lane, memory_limit_bytes=4 * 2**30)
    assert was_forked, why
    assert isinstance(hogging, Infeasible), hogging
    assert hogging.reason == "oom"
    second, was_forked = run(tmp_path, "trains", lane)
    assert was_forked, why
    assert isinstance(second, Measured), second
    assert second.peak_memory_bytes == pytest.approx(first.peak_memory_bytes, rel=0.1)
    lane.close()


@pytest.mark.slow
def test_ranks_of_torchrun_are_forked_after_its_first_run(tmp_path: Path) -> None:
    why: list[str] = []
    lane = Lane(lambda: False, why.append)
    for was_launched in (True, False):
        launch = launch_of(tmp_path, "behaves.py trains")
        typed = f"torchrun --nproc_per_node 2 {SCRIPTS / 'behaves.py'} trains --deepspeed_config"
        command = LaunchCommand.parse(f"{typed} {launch.run_dir.ds_config}", "test")
        outcome = lane.run(replace(launch, command=command), RULES, lambda progress: None)
        assert isinstance(outcome, Measured), outcome
        assert outcome.engine.world_size == 2
        assert lane._forked.has_forked(launch.run_dir) is not was_launched, why
        assert processes_of(launch.run_dir.path) == []
    lane.close()


@pytest.mark.slow
def test_a_script_that_bears_no_fork_is_started_directly_and_counts(tmp_path: Path) -> None:
    why: list[str] = []
    lane = Lane(lambda: False, why.append)
    lane._forked = knows("torch", tmp_path, why.append)
    outcome, _ = run(tmp_path, "bears-no-fork", lane)
    assert isinstance(outcome, Measured), outcome
    assert len(why) == 1
    assert "a forked run failed that worked when started directly" in why[0]
    assert "torch was imported before me" in (tmp_path / "run" / "warm" / "stderr.log").read_text()
    assert lane._forked._servers == []
    lane.close()
