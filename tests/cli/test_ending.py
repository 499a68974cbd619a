"""`dsopt worker`: which studies it takes, and how it is drained."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy
from click.testing import CliRunner, Result

import dsopt as dsopt_api
from dsopt.cli.main import dsopt as command
from dsopt.errors import DsoptError
from tests.api.dry import dry_run
from tests.api.test_ending import write_gated_study
from tests.conftest import Dsopt
from tests.studies import until
from tests.worker.test_protocol_runs import wait_for_a_run

DRAINING = SimpleNamespace(id="w", node="n", pid=1, is_silent=False, silent_seconds=1.0)


@pytest.fixture
def worker(dsopt: Dsopt) -> subprocess.Popen[str]:
    """A worker on all studies, in a run that waits for the file `go`."""
    write_gated_study(dsopt.cwd)
    dsopt.environment["SIMULATED_SECONDS"] = "0"
    dsopt("study", "create", "study.yaml")
    started = dsopt.start("worker", "--devices", "cpu:2")
    wait_for_a_run(dsopt.cwd)
    return started


def end_of(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return output


@pytest.mark.slow
def test_a_worker_without_a_name_shows_the_studies_that_were_created_meanwhile(
    dsopt: Dsopt, worker: subprocess.Popen[str]
) -> None:
    content = dry_run(dsopt.cwd, confirmation={"finalists": 1, "rounds": 1}, autotuning={"results_dir": "dry"})
    (dsopt.cwd / "dry.yaml").write_text(json.dumps(content))
    dsopt("study", "create", "dry.yaml")
    (dsopt.cwd / "go").touch()
    output = end_of(worker)
    assert 0 < output.index("Study 'simulated' is finished.") < output.index("Study 'dry' is finished.")
    assert "There is no study to work on" in dsopt("worker")


def test_a_worker_that_was_refused_every_study_fails(dsopt: Dsopt) -> None:
    """Whatever started it would take the work for done."""
    dsopt.environment |= {"XDG_CONFIG_HOME": str(dsopt.cwd / "config"), "DSOPT_KEYS": ""}
    (dsopt.cwd / "dry.yaml").write_text(json.dumps(dry_run(dsopt.cwd)))
    dsopt("study", "create", "dry.yaml")
    dsopt("key", "create")
    output = dsopt("worker", code=1)
    assert "There is no study to work on" not in output
    assert "study 'dry'" in output


@pytest.mark.slow
@pytest.mark.parametrize("how", ["signal", "command"])
def test_a_drained_worker_ends_well_and_says_what_it_leaves(
    dsopt: Dsopt, worker: subprocess.Popen[str], how: str
) -> None:
    draining = None
    if how == "signal":
        worker.send_signal(signal.SIGUSR1)
    else:
        assert "There is no worker on nowhere" in dsopt("worker", "--drain", "--node", "nowhere")
        draining = dsopt.start("worker", "--drain")
        until(lambda: dsopt.json("workers")[0]["is_draining"])
        assert "draining" in dsopt("workers")
        assert draining.poll() is None
    (dsopt.cwd / "go").touch()
    assert "Study 'simulated' is not finished. Continue with: dsopt worker simulated" in end_of(worker)
    [run] = dsopt.json("study", "show", "simulated")["runs"]
    assert (run["candidate"], run["state"]) == ("baseline", "measured")
    if draining is not None:
        assert f"Draining {os.uname().nodename} (process {worker.pid})" in end_of(draining)


def drain(monkeypatch: pytest.MonkeyPatch, look: Callable[..., object], now: list[float]) -> Result:
    """What comes of draining a worker, as the database tells of it, by a clock that only sleeping and looking move."""
    monkeypatch.setattr(dsopt_api, "drain_workers", lambda *_, **__: [DRAINING])
    monkeypatch.setattr(dsopt_api, "list_workers", look)
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return CliRunner().invoke(command, ["worker", "--drain"])


def test_draining_waits_for_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's preStop hook that fails lets Kubernetes end the runs."""
    gone = sqlalchemy.exc.OperationalError("SELECT 1", {}, OSError("terminated by an administrator"))
    answers = iter([gone, gone, [DRAINING], []])

    def ask(**_: object) -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    done = drain(monkeypatch, ask, [0.0])
    assert done.exit_code == 0, done.output
    assert done.output.count("Waiting: ") == 1
    assert next(answers, None) is None
    answers = iter([DsoptError("a newer version made this database")])
    assert CliRunner().invoke(command, ["worker", "--drain"]).exit_code == 1


@pytest.mark.parametrize("was_away", [True, False])
def test_draining_waits_for_whoever_could_not_beat_while_the_database_was_away(
    monkeypatch: pytest.MonkeyPatch, was_away: bool
) -> None:
    """Not for one that is dead, though each answer takes its time."""
    now, answers = [0.0], iter([was_away, False, False, False, False])  # whether it is away

    def look(**_: object) -> list[SimpleNamespace]:
        now[0] += 10
        if next(answers):
            raise sqlalchemy.exc.OperationalError("SELECT 1", {}, OSError("terminated by an administrator"))
        return [SimpleNamespace(id="w", silent_seconds=30.0, is_silent=True)]

    assert drain(monkeypatch, look, now).exit_code == 0
    assert len(list(answers)) == (1 if was_away else 3)


@pytest.mark.parametrize("silent", [(0.0, False), (3600.0, True)])
def test_a_step_of_the_databases_clock_ends_no_draining_nor_holds_it_up(
    monkeypatch: pytest.MonkeyPatch, silent: tuple[float, bool]
) -> None:
    """Set forward, each worker looks silent until it beats again. Set back, a dead one has just beaten."""
    now, lasting = [0.0], iter([10, 3, 10, 1, 40])  # seconds for which it looks odd, and well, in turn
    until, is_odd, looked = [0.0], [False], [0.0]

    def look(**_: object) -> list[SimpleNamespace]:
        looked[0] = now[0]
        if now[0] >= until[0]:
            until[0], is_odd[0] = now[0] + next(lasting), not is_odd[0]
        seconds, is_silent = silent if is_odd[0] else (1.0, False)
        return [SimpleNamespace(id="w", silent_seconds=seconds, is_silent=is_silent)]

    assert drain(monkeypatch, look, now).exit_code == 0
    assert 10 + 3 + 10 + 1 + 15 <= looked[0] <= 10 + 3 + 10 + 1 + 18


def test_a_database_that_is_away_at_the_end_is_waited_for(dsopt: Dsopt, monkeypatch: pytest.MonkeyPatch) -> None:
    """The study is finished: a failure now would end a job, or the training that `dsopt run` is to start."""
    study = dsopt_api.create_study(dry_run(dsopt.cwd), storage=dsopt.environment["DSOPT_STORAGE"])
    study.run("cpu:1")
    gone = sqlalchemy.exc.OperationalError("SELECT 1", {}, OSError("terminated by an administrator"))
    failures, write = iter([gone, gone]), dsopt_api.Study.write_files

    def write_files(self: dsopt_api.Study, **keys: bool | None) -> object:
        for failure in failures:
            raise failure
        return write(self, **keys)

    monkeypatch.setattr(dsopt_api.Study, "write_files", write_files)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    done = CliRunner().invoke(command, ["worker", "dry", "--storage", dsopt.environment["DSOPT_STORAGE"]])
    assert done.exit_code == 0, done.output
    assert (done.output.count("Waiting: "), done.output.count("is finished.")) == (1, 1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--drain", "simulated"], "--drain starts no worker"),
        (["--drain", "--until-idle"], "--drain starts no worker"),
        (["--node", "gpu1"], "--node needs --drain"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, words: list[str], told: str) -> None:
    done = CliRunner().invoke(command, ["worker", *words])
    assert (done.exit_code, told in done.output) == (2, True)


def test_a_node_without_a_name_is_not_one_without_workers(dsopt: Dsopt) -> None:
    assert "an empty name is that of no node" in dsopt("worker", "--drain", "--node", "", code=1)
