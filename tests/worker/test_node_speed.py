"""A worker measures its node before its first run, with nobody else on it, and leaves nothing."""

import math
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dsopt.api.event_text import event_line
from dsopt.launch import node_speed
from dsopt.launch.devices import DevicePool
from dsopt.launch.processes import processes_of
from dsopt.launch.training import training_of
from dsopt.store.lease_queries import leases_on
from dsopt.store.leases import Request
from dsopt.store.orphans import find_orphans, sweep
from dsopt.store.own_lease import NODE_SPEED, leave_nodes, take_nodes
from dsopt.store.studies import Store
from dsopt.store.transactions import DevicesTaken, WorkerGone
from dsopt.store.who_works import holders_on
from dsopt.store.workers import leave, register
from dsopt.study.node_rates import NodeRates, behind, rates_in, to_text
from dsopt.study.trial_attributes import rates_of_node
from dsopt.worker.happenings import NodeMeasured
from tests.conftest import Dsopt
from tests.outages import on_node
from tests.studies import write_study

POOL = DevicePool(kind="cpu", indices=(0, 1))
REQUEST = Request(pool=POOL, count=2)
ONE = {"train_micro_batch_size_per_gpu": [4], "zero_optimization": {"stage": [0]}}
RATES = ("matmul_tflops", "copy_gb_per_s", "all_reduce_gb_per_s")


@pytest.fixture
def measuring(dsopt: Dsopt, postgres_url: str) -> Dsopt:
    """The command where workers measure their node, in an environment that is activated: launchers run with it."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    dsopt.environment.update(DSOPT_STORAGE=postgres_url, DSOPT_SPEED_CHECK="", PATH=path)
    return dsopt


def test_what_dsopt_keeps_of_a_node_is_read_again_and_nothing_else() -> None:
    rates = NodeRates(
        matmul_tflops=(402.0, 250.0, 404.0), copy_gb_per_s=(1600.0, 1610.0, 1605.0), all_reduce_gb_per_s=None
    )
    text = to_text({"gpu7": rates, "gpu8": rates})
    assert text is not None and to_text({}) is None
    assert rates_in(text) == {"gpu7": rates, "gpu8": rates}
    assert rates.slow_devices() == {1: pytest.approx(1 - 250 / 402)}
    assert str(rates) == "250 TFLOP/s, copies 1.6 TB/s"
    wild = '{"a": {"matmul_tflops": [1' + "0" * 400 + '], "copy_gb_per_s": [1], "all_reduce_gb_per_s": null}}'
    altered = [text.replace(*one) for one in (("250.0", "-1"), ("250.0", "NaN"), ("null", '"fast"'))]
    for other in (None, "", "{", "[]", '"a"', '{"a": 1}', wild, '{"a": {"matmul_tflops": []}}', *altered):
        assert rates_in(other) == {}


def test_a_node_is_behind_by_what_it_lacks_most() -> None:
    usual = {"matmul_tflops": 400.0, "copy_gb_per_s": 1600.0}
    found = behind({"a": usual, "b": usual, "c": {**usual, "copy_gb_per_s": 800.0}, "d": {"matmul_tflops": 380.0}})
    assert found == {"a": 0.0, "b": 0.0, "c": pytest.approx(math.log(0.5)), "d": pytest.approx(math.log(0.95))}
    assert behind({}) == {}
    assert rates_of_node({"node_matmul_tflops": 5e-324, "node_copy_gb_per_s": 1e308}) == {}  # `behind` divides
    assert behind({"a": usual}) == {"a": 0.0}


@pytest.mark.real
@pytest.mark.xdist_group("real")
def test_two_ranks_show_what_they_do(tmp_path: Path) -> None:
    rates = node_speed.measure(training_of(None), POOL, tmp_path / "absent")
    assert rates is not None
    assert len(rates.matmul_tflops) == len(rates.copy_gb_per_s) == 2
    assert 0.001 < min(rates.matmul_tflops) < 100  # any CPU
    assert 0.1 < min(rates.copy_gb_per_s) < 10_000
    assert rates.all_reduce_gb_per_s is not None
    assert list(tmp_path.iterdir()) == []


def test_why_a_node_was_not_measured_is_told(tmp_path: Path) -> None:
    broken = replace(training_of(None), environment={"PYTHONPATH": str(tmp_path)})
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12 is not there')")
    with pytest.raises(node_speed.Unmeasured, match=r"^ImportError: libcudart.so.12 is not there$") as raised:
        node_speed.measure(broken, POOL, tmp_path / "absent")
    told = event_line(NodeMeasured(node="gpu7", pool=POOL, rates=None, why=str(raised.value)))
    assert told is not None and "speed: ImportError: libcudart.so.12 is not there. Runs begin all the same" in told


def test_it_ends_at_once_when_it_is_asked_to(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(node_speed.Unmeasured):
        node_speed.measure(training_of(None), POOL, tmp_path / "absent", should_end=lambda: True)
    assert time.monotonic() - began < node_speed.MOST_SECONDS
    assert not processes_of(tmp_path / "absent")


@pytest.mark.real
@pytest.mark.xdist_group("real")
def test_what_was_measured_is_told_shown_and_kept_with_each_run(measuring: Dsopt, postgres_url: str) -> None:
    dsopt = measuring
    write_study(dsopt.cwd, ds_config=ONE)
    dsopt("study", "create", "study.yaml")
    worker = on_node(dsopt, "here", "worker", "simulated", "--devices", "cpu:2")
    output, _ = worker.communicate(timeout=200)
    assert worker.returncode == 0, output
    assert "Node here: 2 CPU slots, each " in output, output
    store = Store.open(postgres_url)
    study = store.get("simulated")
    trials = [trial for part in study.parts for trial in store.optuna_study(study, part).trials]
    kept = [trial.user_attrs for trial in trials if "ran_on" in trial.user_attrs]
    assert kept and all(attrs[f"node_{name}"] > 0 for attrs in kept for name in RATES)
    store.close()


def test_nobody_gets_devices_of_a_node_while_it_is_measured(store: Store) -> None:
    measuring, other = (register(store.engine) for _ in range(2))
    for _ in range(2):  # again, as after a lost answer
        take_nodes(store.engine, measuring, REQUEST, Path("/absent/dsopt-run"))
    with pytest.raises(DevicesTaken):
        take_nodes(store.engine, other, REQUEST, Path("/absent/dsopt-other"))
    with store.engine.connect() as connection:
        assert find_orphans(connection, other, POOL) == []
        [(_, name, node)] = holders_on(connection, {measuring.node}, without=other.id)
    assert (name, node) == ("", measuring.node)
    leave_nodes(store.engine, measuring)
    take_nodes(store.engine, other, REQUEST, Path("/absent/dsopt-other"))


def test_devices_of_a_worker_that_died_while_it_measured_come_free(store: Store) -> None:
    dead, other = (register(store.engine) for _ in range(2))
    take_nodes(store.engine, dead, REQUEST, Path("/absent/dsopt-run"))
    leave(store.engine, dead)
    with pytest.raises(WorkerGone):
        take_nodes(store.engine, dead, REQUEST, Path("/absent/dsopt-run"))
    with store.engine.connect() as connection:
        orphans = find_orphans(connection, other, POOL)
    assert sweep(store.engine, orphans)
    with store.engine.connect() as connection:
        assert leases_on(connection, dead.node) == []


def test_those_who_do_not_see_the_processes_free_the_devices_too(store: Store, tmp_path: Path) -> None:
    """A container that is killed while its worker measures: the next one has other processes on the same machine."""
    dead, other = (register(store.engine) for _ in range(2))
    run_dir = tmp_path / f"{NODE_SPEED}{dead.id}"
    run_dir.mkdir()
    elsewhere = replace(dead, host=f"{dead.host.partition('/')[0]}/another")
    take_nodes(store.engine, elsewhere, REQUEST, run_dir)
    leave(store.engine, dead)
    with store.engine.connect() as connection:
        [(_, name, _)] = holders_on(connection, {dead.node}, without=other.id)
        orphans = find_orphans(connection, other, POOL)
    assert name == ""  # not "a deleted study"
    assert [orphan.is_hidden for orphan in orphans] == [True]
    assert sweep(store.engine, orphans)
    assert not run_dir.exists()
    with store.engine.connect() as connection:
        assert leases_on(connection, dead.node) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_a_worker_that_ends_while_it_measures_leaves_no_process(
    measuring: Dsopt, postgres_url: str, number: signal.Signals, code: int
) -> None:
    dsopt = measuring
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    worker = on_node(dsopt, "here", "worker", "simulated", "--devices", "cpu:2")
    store = Store.open(postgres_url)
    deadline = time.monotonic() + 120
    while True:
        with store.engine.connect() as connection:
            rows = leases_on(connection, "here")
        if rows:
            break
        assert time.monotonic() < deadline
        time.sleep(0.02)
    store.close()
    run_dir = Path(rows[0]["run_dir"])
    worker.send_signal(number)
    assert worker.wait(30) == code
    deadline = time.monotonic() + 30  # less than they may take
    while processes_of(run_dir):  # they end themselves
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_who_is_to_work_until_there_is_nothing_waits_for_a_measurement(measuring: Dsopt, postgres_url: str) -> None:
    dsopt = measuring
    dsopt.environment["DSOPT_SPEED_CHECK"] = "off"
    write_study(dsopt.cwd, ds_config=ONE)
    dsopt("study", "create", "study.yaml")
    store = Store.open(postgres_url)
    other = replace(register(store.engine), node="here")
    take_nodes(store.engine, other, REQUEST, dsopt.cwd)
    worker = on_node(dsopt, "here", "worker", "simulated", "--devices", "cpu:2", "--until-idle")
    assert worker.stdout is not None
    while "a worker that measures them" not in worker.stdout.readline():
        assert worker.poll() is None
    leave_nodes(store.engine, other)
    output, _ = worker.communicate(timeout=100)
    assert "Study 'simulated' is finished." in output
    store.close()


def test_a_gpu_that_is_slower_than_the_others_is_named() -> None:
    rates = NodeRates(matmul_tflops=(402.0, 250.0), copy_gb_per_s=(1600.0, 1610.0), all_reduce_gb_per_s=210.0)
    pool = DevicePool(kind="gpu", indices=(4, 5))
    assert event_line(NodeMeasured(node="gpu7", pool=pool, rates=rates)) == (
        "Node gpu7: GPUs 4,5, each 250 TFLOP/s, copies 1.6 TB/s, all-reduce 210 GB/s. "
        "WARNING: GPU 5 is 38 % slower than the others."
    )
    slots = event_line(NodeMeasured(node="gpu7", pool=POOL, rates=rates))
    assert slots is not None and "WARNING" not in slots
