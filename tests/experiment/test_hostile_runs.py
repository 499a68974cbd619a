"""Runs that write what no run should, and helpers that are killed: each still ends as an outcome, with a plain text."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from dsopt.experiment import run
from dsopt.experiment.judge import judge
from dsopt.experiment.lane import Lane
from dsopt.experiment.outcome import Failed
from dsopt.launch.forked import ForkedStarts
from dsopt.launch.guard import Guard
from dsopt.protocol.event_reader import EventReader, parse
from dsopt.protocol.run_dir import RunDir
from dsopt.study.command import LaunchCommand
from dsopt.study.own_programs import own_program
from dsopt.worker.spooled import spooled
from tests.runs import engine, launch, rules

ERROR = '{"v":1,"event":"error","rank":0,"type":"E","message":"a\\u0000b \\ud800 end"}'


LIES = ("pipe", "endless", "brackets", "list", "wrong", "pairs", "folder", "loop")


def put(path: Path, lie: str) -> None:
    """Puts something at a path that is not what belongs there."""
    match lie:
        case "pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "brackets":
            path.write_text("[" * 200_000)
        case "list":
            path.write_text("[1]")
        case "wrong":
            path.write_text('{"modules": 3, "changed": [], "attempt": "an-attempt", "state": 5}')
        case "pairs":
            path.write_text('{"modules": [["torch", "there"], [1, "there"]], "changed": ""}')
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path)


def lane_run(folder: Path, body: str, lane: Lane | None = None, **changes: object) -> object:
    """What comes of a launcher that does this, under changed rules."""
    program = folder / "deepspeed"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys, time\nfrom pathlib import Path\nrun = Path(os.environ['DSOPT_RUN_DIR'])\n"
        f"events = run / 'events-rank0.jsonl'\n{body}"
    )
    program.chmod(0o755)
    lane = lane or Lane(lambda: False, lambda _: None)
    try:
        command = LaunchCommand.parse([str(program), "train.py", "--deepspeed_config", "ds.json"], "test")
        started = launch(command=command, cwd=folder, run_dir=RunDir.create(folder, "run"), start="launcher")
        return lane.run(started, rules(**changes), lambda _: None)
    finally:
        lane.close()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param("sys.stderr.write('a\\0b')\nsys.exit(3)", "a\ufffdb", id="NUL in the log"),
        pytest.param("sys.stderr.buffer.write(b'a\\xed\\xa0\\x80b')\nsys.exit(3)", "\ufffd", id="half a character"),
        pytest.param(f"events.write_text({ERROR!r} + '\\n')\ntime.sleep(9)", "a\ufffdb ? end", id="both in an event"),
        pytest.param("sys.stderr.write('x' * 200_000 + ' why')\nsys.exit(3)", " why", id="long line"),
        pytest.param("Path(run / 'stderr.log').unlink()\nsys.exit(3)", "exit code 3", id="log removed"),
        pytest.param(
            "log = run / 'stdout.log'\nlog.unlink()\nos.mkfifo(log)\nsys.exit('why')", "why", id="a log is a pipe"
        ),
        pytest.param("events.mkdir()\nsys.exit('why')", "why", id="events are a folder"),
        pytest.param("os.mkfifo(events)\nsys.exit('why')", "why", id="events are a pipe"),
        pytest.param("events.write_text('[' * 200_000 + '\\n')\nsys.exit('why')", "why", id="brackets"),
        pytest.param("events.write_text('{\"v\":1,\"event\":[1]}\\n')\nsys.exit('why')", "why", id="event of a list"),
    ],
)
def test_it_ends_as_a_failure_that_says_why(tmp_path: Path, body: str, said: str) -> None:
    outcome = lane_run(tmp_path, body)
    assert isinstance(outcome, Failed)
    assert said in outcome.message
    assert "\0" not in outcome.message
    outcome.message.encode("utf-8")


@pytest.mark.parametrize(
    ("message", "is_told"),
    [("KeyError: 'MY_HUB_TOKEN'", True), ("401 Client Error", True), ("size 4016 of layer", False)],
)
def test_a_failure_that_may_lack_a_secret_says_how_to_pass_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, is_told: bool
) -> None:
    monkeypatch.setenv("MY_HUB_TOKEN", "hub-4711")
    event = json.dumps({"v": 1, "event": "error", "rank": 0, "type": "E", "message": f"{message} hub-4711"})
    outcome = lane_run(tmp_path, f"events.write_text({event!r} + '\\n')\ntime.sleep(9)")
    assert isinstance(outcome, Failed)
    assert ("do not get MY_HUB_TOKEN" in outcome.message) == is_told
    assert "hub-4711" not in outcome.message


@pytest.mark.parametrize(
    "line",
    [
        '{"v":1,"event":["x"]}',
        '{"v":1,"event":{}}',
        '{"v":1,"event":null}',
        '{"v":[],"event":"end","rank":0}',
        '{"v":1,"event":"end","rank":"0"}',
        '{"v":1,"event":"end","rank":true}',
        '{"v":1,"event":"end","rank":-1}',
        '{"v":1,"event":"step","rank":0,"step":0,"seconds":NaN,"samples":1}',
        '{"v":1,"event":"step","rank":0,"step":0,"seconds":1e999,"samples":1}',
        '{"v":1,"event":"step","rank":0,"step":0,"seconds":"1","samples":1}',
        '{"v":1,"event":"step","rank":0,"step":0,"seconds":1,"samples":1.5}',
        '{"v":1,"event":"step","rank":0,"step":0,"seconds":1,"samples":' + "9" * 400 + "}",
        '{"v":1,"event":"oom","rank":0,"message":["x"]}',
        "[" * 200_000,
        '{"a":' * 200_000,
        "9" * 5000,
        "\ud800",
        b"\xff\xfe",
        "",
    ],
)
def test_a_line_that_is_no_event_is_none(line: str | bytes) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(
    ("field", "framework", "is_one"),
    [
        *((field, "deepspeed", False) for field in ("world_size", "num_params", "micro_batch", "gas")),
        *((field, "deepspeed", False) for field in ("pipeline_stages", "engines")),
        ("micro_batch", "torch", True),  # it is unknown
        ("hidden_size", "deepspeed", True),
    ],
)
def test_an_engine_has_one_of_everything(field: str, framework: str, is_one: bool) -> None:
    """Or what is divided by it would end each worker, and whoever shows the study."""
    event = {"v": 1, "event": "engine", **asdict(engine(framework=framework)), field: 0}
    assert (parse(json.dumps(event)) is not None) == is_one


def test_whole_numbers_may_be_written_as_floats() -> None:
    assert parse('{"v":1,"event":"batch","rank":0,"rows":4.0,"more":[]}') == parse(
        '{"v":1,"event":"batch","rank":0,"rows":4}'
    )


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with run.events(0).open("wb") as file:
        file.write(b"x" * (2**24 + 5) + b'\n{"v":1,"event":"end","rank":0}\n')
    reader = EventReader(run)
    assert [len(list(reader.read())) for _ in range(3)] == [0, 1, 0]


def test_steps_without_an_engine_are_not_judged_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that did so for an engine that it could not read looked neither at its time limit nor at a stop."""
    judged = []
    monkeypatch.setattr(run, "judge", lambda *args: judged.append(judge(*args)) or judged[-1])
    step = '{"v":1,"event":"step","rank":0,"step":1,"seconds":0.1,"samples":8}'
    body = f"events.write_text(({step!r} + chr(10)) * 20000)\ntime.sleep(60)"
    outcome = lane_run(tmp_path, body, timeout_seconds=3.0)
    assert isinstance(outcome, Failed)
    assert outcome.reason == "timeout"
    assert "told of 20000 steps, and of no engine as docs/run-protocol.md has it, when" in outcome.message
    assert len(judged) < 2000


@pytest.mark.parametrize("lie", LIES[:-1])  # a loop is not there
def test_what_a_script_puts_in_place_of_its_imports_is_not_believed(tmp_path: Path, lie: str) -> None:
    told: list[str] = []
    starts = ForkedStarts(lambda: False, told.append)
    put(RunDir(tmp_path).imports, lie)
    starts.learn(RunDir(tmp_path))
    assert told == ["the script has changed what dsopt wrote about its imports"]
    assert starts.fork([], tmp_path, RunDir(tmp_path)) is None


@pytest.mark.parametrize("lie", LIES)
def test_what_a_script_puts_in_place_of_its_figures_is_no_figure(tmp_path: Path, lie: str) -> None:
    put(RunDir(tmp_path).metrics, lie)
    assert spooled(RunDir(tmp_path), "an-attempt") is None


@pytest.mark.parametrize("lie", LIES)
def test_figures_are_written_whatever_a_script_has_put_there(tmp_path: Path, lie: str) -> None:
    run = RunDir(tmp_path)
    for name in (run.metrics, run.metrics.with_name("metrics.json.tmp")):
        put(name, lie)
    with contextlib.suppress(IsADirectoryError):
        run.write_json(run.metrics, {"attempt": "1"})
    assert (lie == "folder") == run.metrics.is_dir()
    assert lie == "folder" or json.loads(run.metrics.read_text()) == {"attempt": "1"}
    assert not list(tmp_path.glob("*.*.tmp"))[1:]


@pytest.mark.parametrize("lie", LIES)
def test_only_a_runs_own_node_environment_is_removed(tmp_path: Path, lie: str) -> None:
    run = RunDir(tmp_path)
    put(run.node_environment, lie)
    run.remove_node_environment()
    assert os.path.lexists(run.node_environment)


def test_a_folder_that_is_no_runs_keeps_its_node_environment(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for folder, is_kept in (("/another", True), (str(tmp_path), False)):
        run.node_environment.write_text(f"TOKEN=x\nDSOPT_RUN_DIR={folder}\n")
        run.remove_node_environment()
        assert run.node_environment.exists() == is_kept


def test_a_killed_guard_is_replaced_and_the_new_one_ends_the_run(tmp_path: Path) -> None:
    """Twice: before a run, and during one."""
    told: list[str] = []
    guard = Guard(told.append)
    run_dir = tmp_path / "run"
    for times in (1, 2):
        os.kill(guard._process.pid, signal.SIGKILL)
        guard._process.wait()
        if times == 1:
            guard.watch(run_dir, 20001)
        else:
            guard.replace_if_dead()
        assert len(told) == times
        assert "was itself ended (exit code -9)" in told[-1]
    sleeper = subprocess.Popen(["sleep", "600"], env={**os.environ, "DSOPT_RUN_DIR": str(run_dir)})
    guard._drop()  # as if the worker had died
    assert sleeper.wait(timeout=30) == -signal.SIGKILL


def test_a_lane_says_that_its_guard_was_killed_and_finishes_the_run(tmp_path: Path) -> None:
    told: list[str] = []
    lane = Lane(lambda: False, lambda _: None, told.append)
    os.kill(lane._guard._process.pid, signal.SIGKILL)
    lane._guard._process.wait()
    outcome = lane_run(tmp_path, "sys.exit('why')", lane)
    assert isinstance(outcome, Failed)
    assert len(told) == 1


def test_dsopts_own_programs_import_nothing_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "psutil", "dsopt", "runpy"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w').close()\nraise SystemExit('the wrong module')\n")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSOPT_STORAGE", "planted")
    monkeypatch.setenv("MY_TOKEN", "planted-4711")
    guard = Guard()
    environment = Path(f"/proc/{guard._process.pid}/environ")
    deadline = time.monotonic() + 30
    while not (shown := environment.read_bytes()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert b"PATH=" in shown
    assert b"planted" not in shown
    guard.close()
    assert guard._process.returncode == 0
    done = subprocess.run(own_program("dsopt.simulated"), capture_output=True, text=True)
    assert "DSOPT_RUN_DIR is not set" in done.stderr
    assert not (tmp_path / "imported").exists()
