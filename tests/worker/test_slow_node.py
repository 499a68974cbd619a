"""Two workers, each on a node of its own, of which one is slower: the study says so, and its result does not suffer."""

import subprocess

import pytest

from dsopt.store.queries import Row
from dsopt.store.studies import Store
from tests.conftest import Dsopt
from tests.outages import on_node
from tests.studies import check_nothing_lost_nothing_doubled, write_study


def runs_of(dsopt: Dsopt) -> list[Row]:
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    return store.runs(store.get("simulated"))


def test_a_slow_node_is_named_and_decides_nothing(dsopt_on: Dsopt) -> None:
    write_study(
        dsopt_on.cwd,
        ds_config={"train_micro_batch_size_per_gpu": [4, 8, 16], "zero_optimization": {"stage": [1, 2, 3]}},
        autotuning={"tuner_type": "gridsearch"},
        measurement={"race": False},
        confirmation=None,  # the search's own rule
    )
    dsopt_on("study", "create", "study.yaml")
    devices = ("--devices", "cpu:2")
    workers: list[subprocess.Popen[str]] = [
        on_node(dsopt_on, name, "worker", "simulated", *devices, SIMULATED_SPEED=speed)
        for name, speed in (("good", "1"), ("bad", "0.6"))
    ]
    for worker in workers:
        output, _ = worker.communicate(timeout=200)
        assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt_on)
    shown = dsopt_on.json("study", "show", "simulated")
    [told] = shown["slow_nodes"]
    assert told.startswith("Node bad is 4"), told
    assert told in " ".join(dsopt_on("study", "show", "simulated", "--why").split())
    assert shown["comparison"]["best"] == "z1_gas1_tmbspg16"
    best = [row for row in runs_of(dsopt_on) if row["candidate"] == "z1_gas1_tmbspg16"]
    assert {row["node"] for row in best} == {"good", "bad"}
    assert shown["comparison"]["value"] == pytest.approx(32 / (0.9 * 0.026), rel=0.03)
