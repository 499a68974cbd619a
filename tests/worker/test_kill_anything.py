"""Anything may die, freeze or come back at any moment: at the end, the study is as if nothing had happened."""

import contextlib
import json
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from dsopt.launch.processes import processes_of
from dsopt.store.studies import Store
from tests.conftest import Dsopt
from tests.outages import Server, on_node
from tests.studies import check_nothing_lost_nothing_doubled, write_study

NODES = ("one", "two", "three")
SPACE = {
    "train_micro_batch_size_per_gpu": [1, 2, 4, 8, 16],
    "zero_optimization": {"stage": [1, 2, 3], "reduce_bucket_size": list(range(1, 9))},
}


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory, postgres: str, tmp_path: Path) -> Iterator[Server]:
    sockets = tmp_path / "s"  # a socket's path is short
    sockets.mkdir()
    made = Server(tmp_path_factory.mktemp("own-pg"), sockets)
    yield made
    made.close()


class Mischief:
    """Does something bad every second, to whatever lives."""

    def __init__(self, dsopt: Dsopt, server: Server, seed: int) -> None:
        self._dsopt = dsopt
        self._server = server
        self._random = random.Random(seed)
        self.workers: list[subprocess.Popen[str]] = []
        self.done: list[str] = []

    def start_workers(self, count: int) -> None:
        for _ in range(count):
            node = self._random.choice(NODES)
            with (self._dsopt.cwd / "workers.log").open("a") as log:
                self.workers.append(on_node(self._dsopt, node, "worker", "simulated", "--devices", "cpu:4", output=log))

    def living(self) -> list[subprocess.Popen[str]]:
        return [worker for worker in self.workers if worker.poll() is None]

    def do_something(self) -> None:
        actions = {
            "kill a worker": self.kill_a_worker,
            "freeze a worker": self.freeze_a_worker,
            "kill a rank or a guard": self.kill_a_child,
            "restart the server": self.restart,
            "freeze connections": self.freeze_connections,
        }
        name = self._random.choices(list(actions), weights=[4, 3, 5, 1, 2])[0]
        self.done.append(name)
        actions[name]()
        self.start_workers(6 - len(self.living()))

    def kill_a_worker(self) -> None:
        self._random.choice(self.living()).kill()

    def freeze_a_worker(self) -> None:
        worker = self._random.choice(self.living())
        worker.send_signal(signal.SIGSTOP)
        time.sleep(self._random.uniform(0.1, 2))
        worker.send_signal(signal.SIGCONT)

    def kill_a_child(self) -> None:
        with contextlib.suppress(psutil.Error, IndexError):
            children = [c for w in self.living() for c in psutil.Process(w.pid).children(recursive=True)]
            self._random.choice(children).send_signal(self._random.choice([signal.SIGKILL, signal.SIGTERM]))

    def restart(self) -> None:
        self._server.stop()
        time.sleep(self._random.uniform(0, 2))
        self._server.start()

    def freeze_connections(self) -> None:
        self._server.freezer.frozen.set()
        time.sleep(self._random.uniform(0.1, 3))
        self._server.freezer.frozen.clear()

    def end(self) -> None:
        for worker in self.living():
            worker.kill()
            worker.wait()


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_dies_nothing_is_lost_doubled_or_false(server: Server, tmp_path: Path, seed: int) -> None:
    dsopt = Dsopt(tmp_path, server.url)
    write_study(
        tmp_path,
        ds_config=SPACE,
        autotuning={"tuner_type": "random", "tuner_num_trials": 40, "tuner_early_stopping": 40},
        measurement={"max_steps": 15},
        confirmation={"finalists": 2, "rounds": 2},
        stage_order="sequential",
        max_attempts=12,  # ranks are killed here, which is no candidate's fault
    )
    dsopt.environment["SIMULATED_SECONDS"] = "0.3"
    dsopt("study", "create", "study.yaml")
    mischief = Mischief(dsopt, server, seed)
    mischief.start_workers(6)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and mischief.living():
            time.sleep(0.5)
            mischief.do_something()
        mischief.end()
        dsopt("worker", "simulated", "--devices", "cpu:4")
    finally:
        mischief.end()
    check_nothing_lost_nothing_doubled(dsopt)
    check_truth(dsopt)
    assert len(set(mischief.done)) >= 4, mischief.done


def check_truth(dsopt: Dsopt) -> None:
    """Every figure is what the launcher's steps take, and nothing is held or runs any more."""
    log = (dsopt.cwd / "workers.log").read_text()
    assert "Traceback" not in log
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    try:
        study = store.get("simulated")
        runs = store.runs(study)
        for run in runs:
            if run["state"] != "measured":
                assert run["state"] in ("failed", "cancelled"), run
                continue
            config = json.loads((Path(run["run_dir"]) / "ds_config.json").read_text())
            stage, size = config.get("zero_optimization", {}).get("stage", 0), config["train_micro_batch_size_per_gpu"]
            seconds = (0.010 + 0.001 * size) * (1.0, 0.9, 0.95, 1.3)[stage]
            assert run["metric"] == pytest.approx(2 * size / seconds, rel=0.01), run
        for run in runs:
            assert processes_of(Path(run["run_dir"])) == []
        spent = sum(run["state"] == "measured" and run["stage"] != "reference" for run in runs)
        assert spent <= 3 * 40
        with store.engine.connect() as connection:
            nodes = [*NODES, socket.gethostname()]
            held = sa.text("SELECT count(*) FROM dsopt_leases WHERE node = :node")
            left = {node: connection.execute(held, {"node": node}).scalar_one() for node in nodes}
            assert left[socket.gethostname()] == 0
            claims = connection.execute(sa.text("SELECT count(*) FROM dsopt_claims")).scalar_one()
            trials = connection.execute(sa.text("SELECT count(*) FROM trials WHERE state = 'RUNNING'")).scalar_one()
            assert trials == 0 and claims > 0
    finally:
        store.close()
