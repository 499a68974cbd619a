"""A GPU that is slower than the others of its node takes no run that can do without it."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dsopt.launch.devices import DevicePool
from dsopt.launch.placers.ssh import HostFile
from dsopt.store.studies import Store
from dsopt.study.load import load_spec
from dsopt.study.node_rates import NodeRates
from dsopt.study.wanted import Wanted
from dsopt.worker.capacity import Places, without_slow
from dsopt.worker.ending import Ending
from dsopt.worker.loop import Worker
from tests.conftest import SCRIPTS
from tests.studies import write_study

POOL = DevicePool(kind="gpu", indices=(0, 1, 2), is_measured=True)
ONE_IS_SLOW = NodeRates(matmul_tflops=(402.0, 250.0, 404.0), copy_gb_per_s=(1600.0,) * 3, all_reduce_gb_per_s=None)
LAUNCHER = f"""#!{sys.executable}
import os
import sys
os.execv("{SCRIPTS / "deepspeed"}", [*sys.argv, "--num_gpus", "1"])
"""
HOSTS = {"a": (0, 1), "b": (0, 1)}


@pytest.mark.parametrize(("count", "used"), [(1, {0, 2}), (2, {0, 2}), (3, {0, 1, 2})])
def test_runs_go_without_it_if_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, used: set[int]
) -> None:
    """The GPUs are pretended ones, and so is what was measured of them."""
    monkeypatch.setattr("dsopt.worker.node_speed.measure", lambda *_, **__: ONE_IS_SLOW)
    launcher = tmp_path / "deepspeed"  # dsopt names the GPUs
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    write_study(tmp_path, command=f"{launcher} --num_gpus {count} train.py --deepspeed_config ds.json")
    store = Store.open(f"sqlite:///{tmp_path}/dsopt.db", make=True)
    study, _ = store.create(load_spec(tmp_path / "study.yaml")[0])
    Worker(store, POOL, Ending(), lambda _: None).work(lambda: [study])
    assert store.state(study) == "finished"
    taken = [json.loads(run["devices"]) for run in store.runs(study)]
    assert {name for nodes in taken for names in nodes.values() for name in names} == {f"gpu:{index}" for index in used}
    store.close()


def test_of_several_nodes_too(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a slots=2\nb slots=2\n")
    wanted = Wanted(hosts=HOSTS, nodes=2, devices=1)
    places = Places(pool=POOL, count=1, wanted=wanted, placer=HostFile(tmp_path / "hosts"))
    assert without_slow(places, {"b": [0]}, "a").wanted == replace(wanted, hosts={"a": (0, 1), "b": (1,)})
    needs_all = replace(places, wanted=replace(wanted, devices=2))
    assert without_slow(needs_all, {"b": [0]}, "a") == needs_all
    by_the_file = Places(pool=POOL, count=2, hosts={"a": (0, 1)})
    assert without_slow(by_the_file, {"a": [0]}, "a") == by_the_file
