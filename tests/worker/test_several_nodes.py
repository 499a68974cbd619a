"""Runs over several nodes: their ranks there end with the run, and their devices there are leased with it."""

import itertools
import os
import signal
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from dsopt.store.studies import Store
from tests.conftest import SCRIPTS, Dsopt
from tests.outages import on_node
from tests.store.ledger import bury_now, ledger_of, sweep_now
from tests.studies import STUDY, check_nothing_lost_nothing_doubled, until, wait_until_nothing_runs, write_study


@pytest.fixture
def two_nodes(dsopt: Dsopt) -> Dsopt:
    """The command in a folder with a study over this node and `b`, whose runs last until they are ended."""
    launcher = dsopt.cwd / "bin" / "deepspeed"
    launcher.parent.mkdir()
    launcher.symlink_to(SCRIPTS / "by_host_file")
    (dsopt.cwd / "hosts").write_text("localhost slots=2\nb slots=2\n")
    dsopt.environment |= {"SIMULATED_SECONDS": "60", "REMOTE_SHELL": str(SCRIPTS / "remote_shell")}
    command = f"{launcher} --hostfile hosts --num_gpus 2 train.py --deepspeed_config ds.json"
    write_study(dsopt.cwd, command=command)
    dsopt("study", "create", "study.yaml")
    return dsopt


def rank_on_b(folder: Path) -> psutil.Process:
    """The rank on the other node, once it runs."""
    pid = folder / "autotuning_results" / "baseline" / "remote"
    until(lambda: pid.exists() and pid.read_text().strip(), 30)
    return psutil.Process(int(pid.read_text()))


def leased(dsopt: Dsopt) -> set[tuple[str, str]]:
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    try:
        with store.engine.connect() as connection:
            rows = connection.execute(sa.text("SELECT node, device FROM dsopt_leases"))
            return {(row.node, row.device) for row in rows if not row.device.startswith("port:")}
    finally:
        store.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ranks_on_other_nodes_end_with_their_worker(two_nodes: Dsopt, number: int) -> None:
    worker = two_nodes.start("worker", "simulated", "--devices", "cpu:2")
    rank = rank_on_b(two_nodes.cwd)
    assert leased(two_nodes) == {(node, f"cpu:{i}") for node in (os.uname().nodename, "b") for i in range(2)}
    worker.send_signal(number)
    worker.communicate(timeout=60)
    until(lambda: not rank.is_running(), 30)
    wait_until_nothing_runs(two_nodes.cwd)
    assert not list(two_nodes.cwd.glob("autotuning_results/*/node_environment"))  # it may have secrets


def test_whoever_sweeps_up_after_a_worker_without_a_guard_ends_its_ranks_on_other_nodes(two_nodes: Dsopt) -> None:
    worker = two_nodes.start("worker", "simulated", "--devices", "cpu:2")
    rank = rank_on_b(two_nodes.cwd)
    [guard] = [child for child in psutil.Process(worker.pid).children() if "dsopt.launch.guard" in str(child.cmdline())]
    psutil.Process(worker.pid).suspend()  # it would start another guard
    guard.kill()
    worker.kill()
    worker.communicate()
    assert rank.is_running()
    store = Store.open(two_nodes.environment["DSOPT_STORAGE"])
    other = ledger_of(store)
    assert bury_now(store, other) == 1
    assert sweep_now(store, other) == 1
    store.close()
    until(lambda: not rank.is_running(), 30)
    assert leased(two_nodes) == set()


@pytest.mark.slow
def test_workers_on_two_nodes_with_one_host_file_run_in_turn(two_nodes: Dsopt) -> None:
    """Two studies, whose runs would all take the same devices."""
    (two_nodes.cwd / "hosts").write_text("a slots=2\nb slots=2\n")
    two_nodes.environment["SIMULATED_SECONDS"] = "0.1"
    keys = {"command": STUDY["command"].replace("--num_gpus", "--hostfile hosts --num_gpus"), "start": "launcher"}
    for name in ("one", "two"):
        results = {"results_dir": f"{name}-results", "exps_dir": f"{name}-exps"}
        write_study(two_nodes.cwd, name=name, autotuning={**STUDY["autotuning"], **results}, **keys)
        two_nodes("study", "create", "study.yaml")
    nodes = {"a": "one", "b": "two"}
    for worker in [on_node(two_nodes, node, "worker", name, "--devices", "cpu:2") for node, name in nodes.items()]:
        output, _ = worker.communicate(timeout=300)
        assert worker.returncode == 0, output
    store = Store.open(two_nodes.environment["DSOPT_STORAGE"])
    runs = sorted((run["started_at"], run["finished_at"]) for n in ("one", "two") for run in store.runs(store.get(n)))
    store.close()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(runs))
    for name in ("one", "two"):
        check_nothing_lost_nothing_doubled(two_nodes, name)
