"""Studies of a launcher that speaks the run protocol and trains nothing, and what must hold of every finished study."""

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import yaml

from dsopt.launch.processes import processes_of
from dsopt.store.studies import Store
from tests.conftest import SCRIPTS, Dsopt

STUDY: dict[str, Any] = {
    "name": "simulated",
    "command": f"{SCRIPTS / 'deepspeed'} --num_gpus 2 train.py --deepspeed_config ds.json",
    "autotuning": {"max_train_batch_size": 32, "num_tuning_micro_batch_sizes": 2},
    "measurement": {"max_steps": 30},
    "confirmation": {"finalists": 1, "rounds": 2},
}


def write_study(folder: Path, **keys: object) -> None:
    (folder / "train.py").write_text("raise SystemExit('the simulated launcher runs no script')\n")
    ds_config = keys.pop("ds_config", {"train_micro_batch_size_per_gpu": 4})
    (folder / "ds.json").write_text(json.dumps(ds_config))
    (folder / "study.yaml").write_text(yaml.safe_dump({**STUDY, **keys}))


def check_nothing_lost_nothing_doubled(dsopt: Dsopt, name: str = "simulated") -> None:
    """After a study has finished: each claimed candidate was measured once, and nothing is left running."""
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    try:
        found = store.get(name)
        assert found.state == "finished"
        runs = store.runs(found)
        measured = Counter((run["stage"], run["candidate"], run["round"]) for run in runs if run["state"] == "measured")
        assert measured
        assert set(measured.values()) == {1}
        assert not [run for run in runs if run["state"] == "running"]
        for part in found.parts:
            trials = store.optuna_study(found, part).get_trials(deepcopy=False)
            assert not [t for t in trials if not t.state.is_finished()]
            complete = [t for t in trials if t.state == optuna.trial.TrialState.COMPLETE]
            keys = Counter((t.user_attrs["candidate"], t.user_attrs.get("round", 0)) for t in complete)
            assert set(keys.values()) <= {1}
        for run in runs:
            assert processes_of(Path(run["run_dir"])) == []
    finally:
        store.close()


def baseline_ends(database: str) -> list[tuple[str, str | None]]:
    """How attempts at the baseline ended in an SQLite database, in their order: states and reasons."""
    with sqlite3.connect(f"file:{database.removeprefix('sqlite:///')}?mode=ro", uri=True) as connection:
        query = "SELECT state, reason FROM dsopt_attempts WHERE candidate = 'baseline' ORDER BY started_at"
        found = connection.execute(query).fetchall()
    connection.close()
    return found


def wait_until_nothing_runs(folder: Path) -> None:
    """No process of any run of a folder is left, within seconds, though no worker lives to end it."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        runs = list(folder.glob("autotuning_results/*/"))
        if not any(processes_of(run) for run in runs):
            return
        time.sleep(0.1)
    raise AssertionError("processes of a killed worker's run are left")


def wait_for_a_run(folder: Path, of: str = "*") -> None:
    """Some run, or one of this candidate, has begun."""
    deadline = time.monotonic() + 120
    while not list(folder.glob(f"autotuning_results/{of}/cmd.txt")):
        assert time.monotonic() < deadline, "no run was started"
        time.sleep(0.05)


def until(what: Callable[[], Any], seconds: float = 60.0, look_seconds: float = 0.1) -> Any:
    """Waits until something holds, and returns it."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(look_seconds)
    return found


def runs_of(dsopt: Dsopt) -> list[dict[str, Any]]:
    """The runs of the study `simulated`, as they are shown."""
    return dsopt.json("study", "show", "simulated")["runs"]
