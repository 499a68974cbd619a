"""A run over several nodes: each node's ranks start as DeepSpeed's launcher starts them there, and end together."""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dsopt.experiment.outcome import Failed
from dsopt.experiment.run import run_experiment
from dsopt.launch.device_locks import release, reserve
from dsopt.launch.devices import DevicePool, free_ports
from dsopt.launch.part import SILENCE_SECONDS
from dsopt.launch.placement import Place, Placement, Reach
from dsopt.launch.processes import processes_of
from dsopt.launch.spread import Spread
from dsopt.launch.trainings import Mark
from dsopt.protocol.run_dir import PROTOCOL_VARIABLES, RunDir
from dsopt.study.isolation import quiet_environment
from tests.conftest import SCRIPTS
from tests.runs import launch, rules

SCRIPT = SCRIPTS / "prints_itself.py"
# of shells in between, of the launcher's own imports, and what tells where a run's files are
NOT_COMPARED = {"_", "SHLVL", "PWD", "OLDPWD", "DSOPT_RUN_DIR", "DSOPT_WORKERS_RUN_DIR"}


def spread(
    tmp_path: Path,
    words: str,
    counts: tuple[int, ...] = (2, 1),
    reach: Reach | None = None,
    cwd: Path | None = None,
    port: int | None = None,
) -> Spread:
    """A run of our script on two "nodes", which are both this one."""
    run_dir = RunDir.create(tmp_path / "results", "run")
    config = run_dir.path / "ds_config.json"
    config.write_text("{}")
    places = [
        Place(node=name, devices=tuple(range(count)), reach=reach or Reach())
        for name, count in zip("bc", counts, strict=True)
    ]
    typed = f"A='b c' deepspeed --hostfile hosts {words} --deepspeed_config {config}"
    return Spread(
        launch(
            typed,
            cwd=cwd or tmp_path,
            run_dir=run_dir,
            devices=DevicePool(kind="cpu", indices=(0,)),
            port=port or next(free_ports()),
            placement=Placement(places=tuple(places)),
        )
    )


def ended(run: Spread, seconds: float = 60.0) -> int:
    deadline = time.monotonic() + seconds
    while (code := run.exit_code()) is None:
        assert time.monotonic() < deadline, "it never ended"
        time.sleep(0.02)
    return code


def told(text: str) -> dict[str, dict]:
    """What each rank has printed, by its number; the last line may not be whole yet."""
    lines = [json.loads(line) for line in text.rpartition("\n")[0].splitlines() if line.startswith('{"argv"')]
    return {line["environment"]["RANK"]: line for line in lines}


@contextlib.contextmanager
def killed_at_the_end(run: Spread) -> Iterator[RunDir]:
    try:
        yield run._launch.run_dir
    finally:
        run.kill()


def by_launcher(tmp_path: Path, node: int, run_dir: str, port: str, environment: dict[str, str]) -> dict[str, dict]:
    """What `deepspeed.launcher.launch`, which pdsh starts on each node, starts there."""
    world = base64.urlsafe_b64encode(json.dumps({"b": [0, 1], "c": [0]}).encode()).decode()
    words = [f"--world_info={world}", f"--node_rank={node}", "--master_addr=127.0.0.1", f"--master_port={port}"]
    config = ["--deepspeed_config", f"{run_dir}/ds_config.json"]
    own = {"A": "b c", "DSOPT_RUN_DIR": run_dir}
    Path(run_dir).mkdir()  # ours is gone
    started = subprocess.run(
        [sys.executable, "-u", "-m", "deepspeed.launcher.launch", *words, "--module", "dsopt.probe", SCRIPT, *config],
        cwd=tmp_path, env={**environment, **own}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    shutil.rmtree(run_dir)
    return told(started.stdout)


@pytest.mark.real
@pytest.mark.xdist_group("real")
def test_ranks_of_each_node_are_what_deepspeeds_launcher_starts_there(tmp_path: Path) -> None:
    run = spread(tmp_path, f"--master_addr 127.0.0.1 {SCRIPT}")
    with killed_at_the_end(run) as run_dir:
        assert ended(run) == 0, run_dir.stderr.read_text()
        ours = told(run_dir.stdout.read_text())
    assert sorted(ours) == ["0", "1", "2"]
    assert run_dir.stderr.read_text().count("and a last word") == 3
    for node, ranks in enumerate([("0", "1"), ("2",)]):
        mine = ours[ranks[0]]["environment"]
        theirs = by_launcher(tmp_path, node, mine["DSOPT_RUN_DIR"], mine["MASTER_PORT"], dict(os.environ))
        assert sorted(theirs) == sorted(ranks)
        for rank in ranks:
            assert ours[rank]["argv"] == theirs[rank]["argv"]
            assert ours[rank]["cwd"] == theirs[rank]["cwd"] == str(tmp_path)
            own = {"SPT_NOENV", *PROTOCOL_VARIABLES, *quiet_environment(tmp_path)}
            for name in (theirs[rank]["environment"].keys() | ours[rank]["environment"].keys()) - NOT_COMPARED - own:
                if name != "PATH":  # ours adds the folder of Python at its end
                    assert ours[rank]["environment"].get(name) == theirs[rank]["environment"].get(name), name


def test_a_node_has_a_run_directory_of_its_own_which_goes_with_the_run(tmp_path: Path) -> None:
    run = spread(tmp_path, f"{SCRIPT} --wait")
    with killed_at_the_end(run) as run_dir:
        while len(told(run_dir.stdout.read_text() if run_dir.stdout.exists() else "")) < 3:
            assert run.exit_code() is None, run._parts[0].problem
            time.sleep(0.02)
        folders = {one["environment"]["DSOPT_RUN_DIR"] for one in told(run_dir.stdout.read_text()).values()}
        assert len(folders) == 2
        assert str(run_dir.path) not in folders
        assert all(Path(folder, "ds_config.json").read_text() == "{}" for folder in folders)
        assert len(processes_of(run_dir.path)) >= 3
    assert processes_of(run_dir.path) == []
    assert not any(map(os.path.exists, folders))
    assert all(part.is_gone for part in run._parts)


def test_a_rank_that_fails_ends_the_run_and_is_told(tmp_path: Path) -> None:
    run = spread(tmp_path, f"{SCRIPT} --fail")
    with killed_at_the_end(run) as run_dir:
        assert ended(run) == 1
        assert "ValueError: rank 1 has failed" in run_dir.stderr.read_text()
    [error] = [json.loads(line) for line in run_dir.events(1).read_text().splitlines()]
    assert (error["event"], error["type"], error["message"]) == ("error", "ValueError", "rank 1 has failed")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_node_ends_the_run_and_is_named(tmp_path: Path, number: int) -> None:
    run = spread(tmp_path, f"{SCRIPT} --wait")
    lost = run._parts[1]
    assert_started(run)
    os.kill(lost._process.pid, number)
    outcome = run_experiment(run._launch, rules(expected=None), lambda: False, lambda _: None, lambda _: run)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.node, outcome.retryable) == ("hardware", "c", True)
    assert outcome.message.startswith("node 'c': the connection has ended (exit code ")
    assert not run._launch.run_dir.lost.exists()  # this machine sees to its files itself
    assert processes_of(run._launch.run_dir.path) == []


def test_where_an_engine_ends_what_is_lost_a_run_ends_at_once(tmp_path: Path) -> None:
    run = spread(tmp_path, f"{SCRIPT} --wait", reach=Reach(words=("env",), is_ended=True))
    assert_started(run)
    began = time.monotonic()
    os.kill(run._parts[1]._process.pid, signal.SIGKILL)
    assert ended(run) == 1
    run.kill()
    assert time.monotonic() - began < SILENCE_SECONDS
    assert run._launch.run_dir.lost.exists()  # nobody there has said that all is undone
    assert processes_of(run._launch.run_dir.path) == []


def assert_started(run: Spread) -> None:
    while not run._counts:
        assert run.exit_code() is None
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("reach", "why"),
    [
        (Reach(words=("sh", "-c", "echo no route to host >&2; exit 255", "ssh")), "exit code 255): no route to host"),
        (Reach(words=("sh", "-c", "echo hello", "ssh")), "it said something else than dsopt there would"),
        (Reach(words=("sh", "-c", "exec 'sh' -c \"$1\"", "ssh"), is_shell=True), None),
    ],
)
def test_a_node_that_cannot_be_reached_is_told(tmp_path: Path, reach: Reach, why: str | None) -> None:
    run = spread(tmp_path, str(SCRIPT), reach=reach)
    with killed_at_the_end(run) as run_dir:
        code = ended(run)
        if why is None:
            assert code == 0
        else:
            [told] = run_dir.all_events()  # by the first rank of the node that was found first
            [error] = [json.loads(line) for line in told.read_text().splitlines()]
            assert error["type"] == "NodeLost"
            assert why in error["message"]


def test_ranks_meet_at_another_port_if_theirs_is_taken_on_the_first_node(tmp_path: Path) -> None:
    with socket.socket() as other:
        port = next(free_ports())
        other.bind(("", port))
        other.listen()
        run = spread(tmp_path, str(SCRIPT), port=port)
        with killed_at_the_end(run) as run_dir:
            assert ended(run) == 0, run_dir.stderr.read_text()
            ports = {one["environment"]["MASTER_PORT"] for one in told(run_dir.stdout.read_text()).values()}
    assert len(ports) == 1
    assert ports != {str(port)}


def test_ranks_see_the_devices_that_an_engine_has_granted(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path, "run")
    granting = Reach(words=("env", "CUDA_VISIBLE_DEVICES=5,7"))
    places = [
        Place(node="b", devices=(0, 1), reach=granting, is_granted=True),
        Place(node="c", devices=(1,), reach=Reach()),
    ]
    run = Spread(
        launch(
            f"deepspeed --hostfile hosts {SCRIPT}",
            cwd=tmp_path,
            run_dir=run_dir,
            devices=DevicePool(kind="gpu", indices=(0, 1)),
            port=next(free_ports()),
            placement=Placement(places=tuple(places)),
        )
    )
    with killed_at_the_end(run):
        ended(run)
        seen = {
            rank: one["environment"]["CUDA_VISIBLE_DEVICES"] for rank, one in told(run_dir.stdout.read_text()).items()
        }
    assert seen == {"0": "5,7", "1": "5,7", "2": "1"}


def test_ranks_end_when_nothing_is_heard_of_the_worker(tmp_path: Path) -> None:
    code = "import dsopt.launch.part as part; part.SILENCE_SECONDS = 3.0; part.main()"
    lives = tmp_path / "lives"
    script = f"import os, time; open({str(lives)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    rank = {"argv": [sys.executable, "-c", script], "environment": {}}
    order = {"run_dir": "/no/such", "cwd": str(tmp_path), "port": 1, "folders": [], "files": {}, "processes": [rank]}
    order |= {"kind": "cpu", "devices": [0]}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as part:
        assert part.stdin is not None
        assert part.stdout is not None
        part.stdin.write(json.dumps({"start": order}) + "\n")
        part.stdin.flush()
        assert json.loads(part.stdout.readline()) == {"refusal": None, "is_taken": False}
        while not lives.exists() or not lives.read_text():
            part.stdin.write(json.dumps({"alive": True}) + "\n")
            part.stdin.flush()
            time.sleep(0.1)
        assert part.wait(30) == 0  # its input is still open
        assert not psutil.pid_exists(int(lives.read_text()))


def test_a_node_without_the_working_folder_says_so(tmp_path: Path) -> None:
    reach = Reach(words=("sh", "-c", f'rmdir {tmp_path}/gone; exec "$@"', "ssh"))
    (tmp_path / "gone").mkdir()
    run = spread(tmp_path, str(SCRIPT), reach=reach, cwd=tmp_path / "gone")
    with killed_at_the_end(run) as run_dir:
        ended(run)
        [error] = [json.loads(line) for line in run_dir.events(0).read_text().splitlines()]
    why = f"there is no folder {tmp_path}/gone (the study's cwd) there. Every node needs it, with the script in it"
    assert error["message"] == f"node 'b': {why}"


def test_a_node_that_a_training_has_is_not_taken_for_lost(tmp_path: Path) -> None:
    reserved = reserve(DevicePool(kind="cpu", indices=(1,)), "here", Mark(script="t.py"))
    run = spread(tmp_path, f"{SCRIPT} --wait", counts=(1, 2))
    outcome = run_experiment(run._launch, rules(expected=None), lambda: False, lambda _: None, lambda _: run)
    release(reserved)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.node, outcome.retryable) == ("taken", "c", True)
    assert outcome.message.startswith("node 'c': a training of 'dsopt run' has 1 CPU slot there")
    assert not run._launch.run_dir.lost.exists()
    assert processes_of(run._launch.run_dir.path) == []


def test_when_the_worker_is_killed_its_ranks_elsewhere_end(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from tests.launch.test_spread import *\n"
        f"run = spread(Path({str(tmp_path)!r}), '{SCRIPT} --wait'); assert_started(run)\n"
        "print(run._launch.run_dir.path, flush=True); time.sleep(600)"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    folder = Path(worker.stdout.readline().strip())
    assert [p for p in processes_of(folder) if "dsopt.probe" in p.cmdline()]
    worker.kill()
    worker.communicate()
    deadline = time.monotonic() + 30
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    assert not [p for p in psutil.process_iter(["environ"]) if str(folder) in str(p.info["environ"])]
