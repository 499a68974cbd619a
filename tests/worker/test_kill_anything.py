"""Anything may die, freeze or come back at any moment: at the end, the studies are as if nothing had happened.

Three seeds of a third of the trials each; `DSOPT_CHAOS_SEEDS=101-120 make test-chaos` runs others, with all trials.
"""

import itertools
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.launch.processes import host_identity
from dsopt.store.orphans import find_orphans, sweep
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.tables import new_id
from dsopt.store.workers import Registration
from tests.chaos import NODES, Cluster, DeviceWatch, Mischief, run_dirs, seeds, small_disk
from tests.conftest import Dsopt
from tests.outages import Server
from tests.studies import write_study

IS_WHOLE = "DSOPT_CHAOS_SEEDS" in os.environ
TRIALS = 150 if IS_WHOLE else 50  # of each of two stages
OTHERS = 4  # of the one stage of the study that is deleted and created again
MISCHIEF_SECONDS = 150 if IS_WHOLE else 60
CALM_SECONDS = 900  # it takes half of that beside another seed; a frozen holder's lease is over after a minute
SIZES = [1, 2, 4, 8, 16]


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory, postgres: str, tmp_path: Path) -> Iterator[Server]:
    sockets = tmp_path / "s"  # a socket's path is short
    sockets.mkdir()
    made = Server(tmp_path_factory.mktemp("own-pg"), sockets)
    yield made
    made.close()


def create_big(cluster: Cluster, disk: Path) -> None:
    """Two stages of 200 candidates or more each, of which it tries a part."""
    create(
        cluster,
        name="simulated",
        ds_config={
            "train_micro_batch_size_per_gpu": SIZES,
            "zero_optimization": {"stage": [1, 2], "reduce_bucket_size": list(range(1, 41))},
        },
        autotuning=tuning(TRIALS, disk / "big"),
        confirmation={"finalists": 2, "rounds": 3},
    )


def create_other(cluster: Cluster, disk: Path, number: int) -> None:
    """The study of that number and of always the same name, with figures of its own."""
    create(
        cluster,
        name="other",
        ds_config={
            "train_micro_batch_size_per_gpu": SIZES,
            "gradient_accumulation_steps": number,
            "zero_optimization": {"stage": [1]},
        },
        autotuning=tuning(OTHERS, disk / f"other-{number}"),
        confirmation={"finalists": 1, "rounds": 2},
    )


def tuning(trials: int, results: Path) -> Mapping[str, Any]:
    return {
        "tuner_type": "random", "tuner_num_trials": trials, "tuner_early_stopping": 1000, "fast": False,
        "results_dir": str(results), "exps_dir": str(results) + "-exps",
    }  # fmt: skip


def create(cluster: Cluster, **keys: object) -> None:
    command = f"{cluster.launcher} --num_gpus 2 train.py --deepspeed_config ds.json"
    patient = {"max_attempts": 12, "stage_order": "sequential", "measurement": {"max_steps": 15}}
    write_study(cluster.dsopt.cwd, command=command, **patient, **keys)
    cluster.dsopt("study", "create", "study.yaml")


def create_again(cluster: Cluster, disk: Path, number: int) -> None:
    cluster.dsopt("study", "stop", "other")
    cluster.dsopt("study", "delete", "other", "--yes")
    create_other(cluster, disk, number)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds("1-3"))
def test_whatever_dies_nothing_is_lost_doubled_or_false(server: Server, tmp_path: Path, seed: int) -> None:
    dsopt = Dsopt(tmp_path, server.direct_url)
    dsopt.environment["SIMULATED_SECONDS"] = "0.1"
    cluster = Cluster(dsopt, server, tmp_path / "n")
    with small_disk(tmp_path / "disk", "300m") as is_small:
        disk, numbers = tmp_path / "disk", itertools.count(1)
        create_big(cluster, disk)
        create_other(cluster, disk, next(numbers))
        cluster.commands = [("simulated", "other"), ("other", "simulated")]
        watch = DeviceWatch(server.direct_url, disk)

        def is_over() -> bool:
            watch.look()
            return are_finished(server.direct_url)

        mischief = Mischief(
            cluster, seed, disk if is_small else None, lambda: create_again(cluster, disk, next(numbers))
        )
        try:
            mischief.work(MISCHIEF_SECONDS, is_over)
            mischief.calm(CALM_SECONDS, is_over)
            check_truth(server.direct_url)
            check_best(dsopt, cluster)
        except BaseException:
            print(f"seed {seed}: {mischief.done}", *cluster.tails(), sep="\n")
            raise
        finally:
            cluster.close()
            watch.close()
        assert not watch.caught, "processes ran on devices that their attempt did not hold"
        assert watch.looks > 10
        check_nothing_is_left(server.direct_url, tmp_path)
    assert len(set(mischief.done)) >= 6, mischief.done


def are_finished(url: str) -> bool:
    try:
        store = Store.open(url)
    except DsoptError:
        return False  # the server is being restarted
    try:
        return {header.state for header in store.headers()} == {"finished"}
    except sa.exc.DBAPIError:
        return False
    finally:
        store.close()


def check_truth(url: str) -> None:
    """Each claimed candidate has one figure that counts, which its own run printed; budgets are exact."""
    store = Store.open(url)
    try:
        for name, budget in (("simulated", 2 * TRIALS), ("other", OTHERS)):
            study = store.get(name)
            check_runs(store, study)
            with store.engine.connect() as connection:
                query = sa.text("SELECT stage, trial FROM dsopt_claims WHERE study_id = :id")
                claims = {tuple(row) for row in connection.execute(query, {"id": study.id})}
            assert len([stage for stage, _ in claims if stage != "reference"]) == budget
            parts = {part: store.optuna_study(study, part).get_trials(deepcopy=False) for part in study.parts}
            own = {  # the user's own configuration under another name: it has the figure of the baseline's run
                (part, trial.number)
                for part, trials in parts.items()
                for trial in trials
                if trial.user_attrs.get("measured_as") == "baseline"
            }
            assert len(own) <= 1
            measured = [(run["stage"], run["trial"]) for run in store.runs(study) if run["state"] == "measured"]
            assert sorted(measured) == sorted(claims - own), "a candidate was measured twice, or not at all"
            for part, trials in parts.items():
                complete = {(part, trial.number) for trial in trials if trial.state.name == "COMPLETE"}
                assert complete == {claim for claim in claims if claim[0] == part}
                assert all(trial.state.is_finished() for trial in trials)
    finally:
        store.close()


def check_runs(store: Store, study: StoredStudy) -> None:
    """Every recorded figure is in the run directory, which is of that candidate, and is what its steps take."""
    assert study.state == "finished"
    for run in store.runs(study):
        if run["state"] != "measured":
            assert run["state"] in ("failed", "cancelled"), run
            continue
        folder = Path(run["run_dir"])
        asked, printed = (json.loads((folder / name).read_text()) for name in ("exp.json", "metrics.json"))
        assert (asked["name"], asked["round"]) == (run["candidate"], run["round"])
        config = asked["ds_config"]
        stage, size = config.get("zero_optimization", {}).get("stage", 0), config["train_micro_batch_size_per_gpu"]
        seconds = (0.010 + 0.001 * size) * (1.0, 0.9, 0.95, 1.3)[stage]  # of each accumulated batch
        assert run["metric"] == pytest.approx(2 * size / seconds, rel=0.01), run
        assert run["step_seconds"] == pytest.approx(printed["measurement"]["step_seconds"]), run


def check_best(dsopt: Dsopt, cluster: Cluster) -> None:
    """The answer is the fastest there is, or says that it is not confirmed."""
    shown = dsopt("study", "show", "simulated")
    if "not confirmed" not in shown:
        best = dsopt.json("study", "best", "simulated")["comparison"]["best"]
        assert best.startswith("z1") and best.endswith("tmbspg16"), best
    assert "Traceback" not in cluster.logs()


def check_nothing_is_left(url: str, folder: Path) -> None:
    """What the last dead workers held is swept by whoever of their node comes next; nothing else is there."""
    assert [run_dir for _, run_dir in run_dirs() if run_dir.startswith(str(folder))] == []
    store = Store.open(url)
    try:
        for node in NODES:
            me = Registration(id=new_id(), node=node, host=host_identity())
            with store.engine.connect() as connection:
                orphans = find_orphans(connection, me, DevicePool(kind="cpu", indices=()))
            sweep(store.engine, orphans)
        with store.engine.connect() as connection:
            assert connection.execute(sa.text("SELECT node, device, run_dir FROM dsopt_leases")).all() == []
    finally:
        store.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (left := programs_in(folder)):
        time.sleep(0.2)
    assert left == []


def programs_in(folder: Path) -> list[str]:
    """What still runs in a folder: a worker, its guard, a rank."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.pid != os.getpid():
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found
