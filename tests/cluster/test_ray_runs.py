"""Runs on the nodes of a Ray cluster: Ray places them side by side, and they end with the worker, and with a node."""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsopt.launch.part import SILENCE_SECONDS
from tests.cluster.nodes import Daemon, Node, wait_until
from tests.cluster.raylets import Raylets, raylets
from tests.cluster.studies import are_side_by_side, check_finished, create, let_two_meet, runs_of, told_by_ranks
from tests.conftest import SCRIPTS, TINY_GPT, Dsopt
from tests.docs.pages import DOCS, blocks
from tests.docs.test_pages import made_folder
from tests.studies import write_study

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("ray")]

FEW = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": [1, 2]}}  # candidates
GROUPS = """
import ray
from ray.util.placement_group import placement_group_table
ray.init(log_to_driver=False, logging_level="ERROR")
groups = [group["state"] for group in placement_group_table().values() if group["state"] != "REMOVED"]
print("groups", groups, "free GPUs", ray.available_resources().get("GPU", 0))
"""
HOLDS = """
import time
import ray
from ray.util.placement_group import placement_group
ray.init(log_to_driver=False, logging_level="ERROR")
ray.get(placement_group([{"GPU": 2}] * 2, strategy="STRICT_SPREAD").ready())
print("held", flush=True)
time.sleep(600)
"""


def worker_on_head(dsopt: Dsopt, cluster: Raylets, *options: str) -> Daemon:
    """A worker on the head of the cluster: Ray's drivers have to be on one of its nodes."""
    return cluster.nodes["head"].start(
        sys.executable, "-m", "dsopt", "worker", "simulated", "--ray", cluster.address, *options,
        log=dsopt.cwd / "worker.log", environment={**dsopt.environment, **cluster.environment},
    )  # fmt: skip


def ended_well(worker: Daemon, seconds: float = 300) -> str:
    """What a worker printed that has finished its study."""
    wait_until(lambda: not worker.is_alive, "the worker ends", seconds)
    told = worker.log.read_text()
    assert worker.code == 0, told
    return told


def count_on(node: Node) -> int:
    """How many processes of dsopt and of its runs are on a node."""
    return int(node.run("sh", "-c", "pgrep --count --full '[d]sopt[.]launch|[p]retends.py' || true"))


def count_left(cluster: Raylets) -> int:
    """How many of them are on all nodes."""
    return sum(map(count_on, cluster.nodes.values()))


@contextlib.contextmanager
def all_gpus_taken(dsopt: Dsopt, cluster: Raylets) -> Iterator[None]:
    """Another driver has all GPUs of the cluster meanwhile."""
    log = dsopt.cwd / "other.log"
    other = cluster.nodes["head"].start(sys.executable, "-c", HOLDS, log=log, environment=cluster.environment)
    wait_until(lambda: "held" in log.read_text(), "it has them")
    yield
    other.end(signal.SIGKILL)


def test_runs_over_two_nodes_go_on_side_by_side(dsopt: Dsopt, ray_cluster: Raylets) -> None:
    let_two_meet(dsopt)
    create(dsopt, "torchrun", nodes=2, ranks=1, ds_config=FEW, confirmation={"finalists": 1, "rounds": 1})
    told = ended_well(worker_on_head(dsopt, ray_cluster, "--until-idle"))
    runs = check_finished(dsopt)
    assert "Working with 4 devices of 2 nodes (Ray)." in told
    assert told_by_ranks(dsopt) == ["rank 0 of 2 on node1", "rank 1 of 2 on node2"]
    assert are_side_by_side(runs)
    assert not [run for run in runs if run["state"] == "failed"], runs
    assert all(json.loads(run["devices"]).keys() == {"node1", "node2"} for run in runs)
    command = (dsopt.cwd / "autotuning_results" / "baseline" / "cmd.txt").read_text()
    assert command.startswith("# on node1: 0, node2: 0\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_waits_for_gpus_and_leaves_nothing(dsopt: Dsopt, ray_cluster: Raylets, number: signal.Signals) -> None:
    dsopt.environment["PRETENDED_UNTIL"] = str(dsopt.cwd / "never")
    create(dsopt, "deepspeed", nodes=2, ranks=1)
    with all_gpus_taken(dsopt, ray_cluster):
        worker = worker_on_head(dsopt, ray_cluster)
        wait_until(lambda: "Waiting for devices: Ray has none to grant." in worker.log.read_text(), "it waits")
    log = dsopt.cwd / "autotuning_results" / "baseline" / "stdout.log"
    wait_until(lambda: log.exists() and log.read_text().count("rank ") == 2, "both ranks run")
    assert "CREATED" in ray_cluster.python(GROUPS)
    assert count_left(ray_cluster) >= 8  # driver, two bridges, two parts with a guard each, two ranks
    worker.end(number)
    wait_until(lambda: count_left(ray_cluster) == 0, "no process is left")
    wait_until(lambda: "groups [] free GPUs 4" in ray_cluster.python(GROUPS), "Ray has all GPUs back")
    assert {run["state"] for run in runs_of(dsopt)} == {"cancelled" if number == signal.SIGTERM else "running"}


def test_a_raylet_that_dies_is_no_fault_of_the_candidate(dsopt: Dsopt) -> None:
    """The results of each node are a file system of its own. What ranks wrote there comes back through Ray."""
    with raylets("node1", "node2", "node3", gpus=1) as cluster:
        dsopt.environment["PRETENDED_UNTIL"] = str(dsopt.cwd / "go")
        create(dsopt, "deepspeed", nodes=2, ranks=1, ds_config=FEW, confirmation={"finalists": 1, "rounds": 1})
        results, trainers = dsopt.cwd / "autotuning_results", [cluster.nodes[f"node{number}"] for number in (1, 2, 3)]
        results.mkdir()
        for node in trainers:
            node.run("mount", "-t", "tmpfs", "tmpfs", str(results))
        worker = worker_on_head(dsopt, cluster)
        log = results / "baseline" / "stdout.log"
        wait_until(lambda: log.exists() and log.read_text().count("rank ") == 2, "both ranks run")
        name = next(name for name in ("node1", "node2") if f"on {name}" in log.read_text())
        killed_at = time.time()
        cluster.nodes[name].run("pkill", "-KILL", "raylet")
        wait_until(lambda: count_on(cluster.nodes[name]) == 0, "its ranks end with it")
        (dsopt.cwd / "go").touch()
        told = ended_well(worker)
        runs = check_finished(dsopt)
        [lost] = [run for run in runs if run["reason"] == "hardware"]
        assert f"node '{name}': the connection has ended" in lost["message"]
        assert lost["finished_at"] - killed_at < SILENCE_SECONDS  # without waiting as for ranks that Ray does not end
        assert f"node {name} is avoided from now on" in told
        assert not [run for run in runs if run["state"] == "failed" and run is not lost]
        assert count_left(cluster) == 0
        assert [node.run("ls", "-A", str(results)) for node in trainers] == [""] * 3


@pytest.mark.parametrize(("page", "name"), [("clusters", "two-nodes"), ("guides/ray", "my-study")])
def test_the_commands_of_a_page_lead_to_a_finished_study(
    dsopt: Dsopt, ray_cluster: Raylets, page: str, name: str
) -> None:
    made_folder(dsopt.cwd)
    shutil.copy(SCRIPTS / "pretends.py", dsopt.cwd / "train.py")
    found = list(blocks(DOCS / f"{page}.md"))
    [study] = [block.text for block in found if block.caption == f"{name}.yaml"]
    (dsopt.cwd / f"{name}.yaml").write_text(study)
    [commands] = [block.text for block in found if "test_ray_runs.py" in block.reason]
    environment = {**dsopt.environment, **ray_cluster.environment}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    script = f"set -e; cd {dsopt.cwd}\n{commands}"
    told = ray_cluster.nodes["head"].run("bash", "-c", script, environment=environment, seconds=300)
    assert "Working with 4 devices of 2 nodes (Ray)." in told
    assert f"Study '{name}' is finished." in told


def test_a_run_that_ray_can_never_hold_is_refused(dsopt: Dsopt, ray_cluster: Raylets) -> None:
    create(dsopt, "deepspeed", nodes=2, ranks=3)
    worker = worker_on_head(dsopt, ray_cluster)
    wait_until(lambda: not worker.is_alive, "the worker ends")
    assert worker.code == 1
    assert (
        "command: it takes 2 nodes with 3 devices each; 4 devices of 2 nodes (Ray) has node1 (2), node2 (2)"
        in worker.log.read_text()
    )


@pytest.mark.usefixtures("deepspeed_operators")
def test_real_ranks_of_two_nodes_train_together(dsopt: Dsopt, ray_cluster: Raylets) -> None:
    dsopt.environment["DS_ACCELERATOR"] = "cpu"
    command = f"deepspeed --num_nodes 2 --num_gpus 1 {TINY_GPT} --deepspeed_config ds.json"
    adam = {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}
    write_study(dsopt.cwd, command=command, ds_config={"train_micro_batch_size_per_gpu": 1, "optimizer": adam})
    dsopt("study", "create", "study.yaml")
    worker = worker_on_head(dsopt, ray_cluster)
    wait_until(lambda: any(run["state"] == "measured" for run in runs_of(dsopt)), "the baseline is measured", 300)
    worker.end()
    wait_until(lambda: count_left(ray_cluster) == 0, "no process is left")
