"""A worker for all nodes measures each of them before its first run: by ssh, within a Slurm job, through Ray."""

import os
import sys
from pathlib import Path

import pytest

from dsopt.store.reading import kept_trials
from dsopt.store.studies import Store
from dsopt.study.trial_attributes import attributes_of, rates_of_node
from tests.cluster.left import present
from tests.cluster.nodes import wait_until
from tests.cluster.raylets import Raylets
from tests.cluster.slurm import Slurm
from tests.cluster.sshd import Hosts
from tests.cluster.studies import check_finished, create
from tests.cluster.test_ray_runs import GROUPS, all_gpus_taken, count_left, ended_well, worker_on_head
from tests.cluster.test_slurm_runs import submitted
from tests.conftest import Dsopt

pytestmark = pytest.mark.cluster

FEW = {"train_micro_batch_size_per_gpu": [4], "zero_optimization": {"stage": [1, 2]}}


def measuring(dsopt: Dsopt, environment: dict[str, str]) -> Dsopt:
    """The command where workers measure, in an environment that is activated: launchers run with it."""
    path = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.environ["PATH"])])
    dsopt.environment |= {**environment, "DSOPT_SPEED_CHECK": "", "PATH": path}
    return dsopt


def check_rates(dsopt: Dsopt, told: str) -> None:
    """Each node was told of, and each run on one node knows how fast that is."""
    for node in ("node1", "node2"):
        assert f"Node {node}: " in told and "TFLOP/s, copies" in told.split(f"Node {node}: ")[1].split("\n")[0]
    check_finished(dsopt)
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    try:
        known = [rates_of_node(attributes_of(one.trial)) for one in kept_trials(store, store.get("simulated"))]
    finally:
        store.close()
    assert known and all(set(rates) >= {"matmul_tflops", "copy_gb_per_s"} for rates in known)


@pytest.mark.xdist_group("ssh")
def test_the_nodes_of_a_host_file_are_measured(dsopt: Dsopt, ssh_hosts: Hosts) -> None:
    measuring(dsopt, dict(ssh_hosts.environment))
    (dsopt.cwd / "hosts").write_text(ssh_hosts.host_file(2))
    create(dsopt, "deepspeed", nodes=1, ranks=1, ds_config=FEW)
    before = present(ssh_hosts.config.parent)
    check_rates(dsopt, dsopt("worker", "simulated", "--hostfile", "hosts"))
    assert present(ssh_hosts.config.parent) == before
    assert not list((dsopt.cwd / "autotuning_results").glob("node-speed-*"))


@pytest.mark.xdist_group("ssh")
def test_a_node_that_is_not_measured_is_told_and_takes_runs(dsopt: Dsopt, ssh_hosts: Hosts) -> None:
    measuring(dsopt, dict(ssh_hosts.environment))
    (dsopt.cwd / "hosts").write_text("node1 slots=1\nnode9 slots=1\n")
    create(dsopt, "deepspeed", nodes=1, ranks=1, ds_config=FEW)
    told = dsopt("worker", "simulated", "--hostfile", "hosts")
    assert "Node node9: its devices did not show their speed: " in told
    assert "Node node1: " in told


@pytest.mark.xdist_group("slurm")
def test_the_nodes_of_a_slurm_job_are_measured(dsopt: Dsopt, slurm_cluster: Slurm) -> None:
    measuring(dsopt, {})
    create(dsopt, "deepspeed", nodes=1, ranks=1, ds_config=FEW)
    job = submitted(dsopt, slurm_cluster)
    assert slurm_cluster.wait(job, "COMPLETED", "FAILED", seconds=600) == "COMPLETED", (dsopt.cwd / "out").read_text()
    check_rates(dsopt, (dsopt.cwd / "out").read_text())


@pytest.mark.xdist_group("ray")
def test_the_nodes_of_a_ray_cluster_are_measured(dsopt: Dsopt, ray_cluster: Raylets) -> None:
    """By their CPUs: their GPUs are pretended ones."""
    measuring(dsopt, {"DS_ACCELERATOR": "cpu"})
    create(dsopt, "torchrun", nodes=1, ranks=1, ds_config=FEW)
    told = ended_well(worker_on_head(dsopt, ray_cluster, "--until-idle"))
    check_rates(dsopt, told)
    assert count_left(ray_cluster) == 0
    assert "groups [] free GPUs 4" in ray_cluster.python(GROUPS)


@pytest.mark.xdist_group("ray")
def test_nodes_that_ray_has_given_to_others_are_not_waited_for(dsopt: Dsopt, ray_cluster: Raylets) -> None:
    measuring(dsopt, {})
    create(dsopt, "torchrun", nodes=1, ranks=1, ds_config=FEW)
    with all_gpus_taken(dsopt, ray_cluster):
        worker = worker_on_head(dsopt, ray_cluster)
        wait_until(lambda: "Waiting for devices: Ray has none to grant." in worker.log.read_text(), "it waits")
    assert "Node node" not in ended_well(worker)
    check_finished(dsopt)
