"""`--notify`: who is told of which ending, once, by real workers."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import dsopt as api
from tests.api.dry import dry_run
from tests.api.test_ending import write_gated_study
from tests.api.test_notifying import Hook, hook
from tests.conftest import Dsopt
from tests.studies import until, write_study
from tests.worker.test_protocol_runs import wait_for_a_run

__all__ = ["hook"]


def create(dsopt: Dsopt, name: str = "dry", **keys: object) -> None:
    (dsopt.cwd / f"{name}.yaml").write_text(yaml.safe_dump(dry_run(dsopt.cwd, **keys) | {"name": name}))
    dsopt("study", "create", f"{name}.yaml")


def told(folder: Path) -> list[dict]:
    """What the command of the tests has appended, a line each."""
    path = folder / "told"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


APPEND = "cat >> told; echo >> told"


def test_a_finished_study_is_told_once(dsopt: Dsopt, hook: Hook) -> None:
    create(dsopt)
    dsopt("worker", "dry", "--devices", "cpu:1", "--notify", hook.url)
    [(_, _, _, about)] = hook.got
    result = dsopt.json("study", "best", "dry")
    assert (about["study"], about["state"], about["sentence"]) == ("dry", "finished", result["sentence"])
    assert about["factor"] == result["comparison"]["speedup"] > 1
    assert about["interval"] == result["comparison"]["interval"]
    batch = result["batch_advice"]
    assert (about["own_global_batch"], about["best_global_batch"]) == (batch["own"], batch["best"])
    assert f"Its global batch is {batch['best']} samples, yours {batch['own']}." in about["sentence"]
    assert about["storage"] == dsopt.environment["DSOPT_STORAGE"]
    dsopt("worker", "dry", "--devices", "cpu:1", "--notify", hook.url)  # it had ended before
    assert len(hook.got) == 1


def test_a_worker_on_all_studies_tells_of_each(dsopt: Dsopt) -> None:
    create(dsopt, "one")
    create(dsopt, "two", autotuning={"results_dir": "two"})
    dsopt.environment["DSOPT_NOTIFY"] = APPEND
    dsopt("worker", "--devices", "cpu:1")
    assert [(about["study"], about["state"]) for about in told(dsopt.cwd)] == [("one", "finished"), ("two", "finished")]


def test_a_result_that_is_not_confirmed_is_told_as_such(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    dsopt.environment |= {"SIMULATED_FAILURES": "z*:1", "SIMULATED_SECONDS": "0"}
    dsopt("worker", "simulated", "--devices", "cpu:2", "--notify", APPEND, code=1)
    [about] = told(dsopt.cwd)
    assert about["state"] == "unconfirmed" and about["sentence"].startswith("Not confirmed. In the search")
    assert (about["factor"], about["interval"]) == (None, None)


def test_a_study_that_somebody_stops_is_told(dsopt: Dsopt) -> None:
    write_gated_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    create(dsopt, "dry", autotuning={"results_dir": "dry"})
    worker = dsopt.start("worker", "simulated", "dry", "--devices", "cpu:2", "--notify", APPEND)
    wait_for_a_run(dsopt.cwd)
    dsopt("study", "stop", "simulated")
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    about, other = told(dsopt.cwd)  # when the next study's turn begins, not when that one has ended
    assert (about["study"], about["state"]) == ("simulated", "stopped")
    assert (other["study"], other["state"]) == ("dry", "finished")
    assert about["sentence"] == "Stopped: by 'dsopt study stop'"


def test_who_stops_a_worker_is_not_told(dsopt: Dsopt) -> None:
    write_gated_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2", "--notify", APPEND)
    wait_for_a_run(dsopt.cwd)
    worker.send_signal(signal.SIGTERM)
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 130, output
    assert told(dsopt.cwd) == []


def test_a_command_that_hangs_keeps_no_worker_from_ending(dsopt: Dsopt) -> None:
    create(dsopt, "first", autotuning={"results_dir": "first"})
    write_gated_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    worker = dsopt.start("worker", "first", "simulated", "--devices", "cpu:2", "--notify", "touch told; sleep 50")
    wait_for_a_run(dsopt.cwd)  # of the next study
    until((dsopt.cwd / "told").exists)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=20)
    assert worker.returncode == 130


def test_an_error_that_keeps_a_study_from_going_on_is_told_of_that_study_alone(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd, pass_env=["HF_TOKEN"])
    dsopt.environment["HF_TOKEN"] = "hf_0123456789"
    dsopt("study", "create", "study.yaml")
    del dsopt.environment["HF_TOKEN"]
    create(dsopt, "dry", autotuning={"results_dir": "dry"})
    dsopt("worker", "simulated", "dry", "--devices", "cpu:2", "--notify", APPEND, code=1)
    finished, stuck = told(dsopt.cwd)
    assert (finished["study"], finished["state"]) == ("dry", "finished")
    assert (stuck["study"], stuck["state"]) == ("simulated", "stuck")
    assert "the variable 'HF_TOKEN' is not set in this worker's environment" in stuck["sentence"]


def test_a_worker_that_cannot_begin_says_so(dsopt: Dsopt) -> None:
    create(dsopt)
    dsopt("worker", "drry", "--notify", APPEND, code=1)
    [about] = told(dsopt.cwd)
    assert (about["study"], about["state"]) == (None, "stuck")
    assert "no study 'drry'" in about["sentence"]


def test_tune_tells_and_its_json_stays_one_document(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd, ds_config={"train_micro_batch_size_per_gpu": [4, 8], "zero_optimization": {"stage": 1}})
    command = yaml.safe_load((dsopt.cwd / "study.yaml").read_text())["command"].split()
    dsopt.environment["SIMULATED_SECONDS"] = "0"
    done = subprocess.run(
        [sys.executable, "-m", "dsopt", "tune", "--json", "--devices", "cpu:2", "--name", "mine",
         "--notify", f"{APPEND}; echo noise; exit 3", "--", *command],
        cwd=dsopt.cwd, env=dsopt.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    [about], [result] = told(dsopt.cwd), json.loads(done.stdout)["studies"]
    assert (about["study"], about["sentence"]) == ("mine", result["sentence"])
    expected = "warning: the notification about study 'mine' (finished) was not delivered: the command exited with 3"
    assert [line for line in done.stderr.splitlines() if "notification" in line] == [f"{expected}: noise"]


def test_a_comparison_is_told_too(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd)
    (dsopt.cwd / "mine.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 16}))
    command = yaml.safe_load((dsopt.cwd / "study.yaml").read_text())["command"].split()
    dsopt.environment["SIMULATED_SECONDS"] = "0"
    given = ("--name", "both", "--with", "mine=mine.json", "--rounds", "2", "--devices", "cpu:2", "--notify", APPEND)
    dsopt("compare", *given, "--", *command)
    table = api.load_study("both", storage=dsopt.environment["DSOPT_STORAGE"]).table.to_json()
    [about] = told(dsopt.cwd)
    [mine] = [row for row in table["rows"] if row["name"] == "mine"]
    assert (about["study"], about["state"]) == ("both", "finished")
    assert about["sentence"].startswith("mine is the fastest: ") and about["factor"] == mine["factor"]["factor"]


@pytest.mark.parametrize("given", ["option", "variable"])
def test_what_is_neither_is_refused_before_any_work(dsopt: Dsopt, given: str) -> None:
    create(dsopt)
    args, origin = ["--notify", "ftp://host/"], "--notify"
    if given == "variable":
        args, origin = [], "DSOPT_NOTIFY"
        dsopt.environment["DSOPT_NOTIFY"] = "ftp://host/"
    assert f"error: {origin}: dsopt does not speak 'ftp://'" in dsopt("worker", "dry", *args, code=1)
    assert dsopt.json("study", "list")[0]["state"] == "created"
    assert "takes only --node, --storage and --json" in dsopt("worker", "--drain", "--notify", "true", code=2)
