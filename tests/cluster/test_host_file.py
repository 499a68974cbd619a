"""Runs over the nodes of a host file, by real ssh: packed side by side, ended with the worker, and not with a node."""

import signal
from pathlib import Path

import pytest

from tests.cluster.left import present
from tests.cluster.nodes import wait_until
from tests.cluster.sshd import Hosts, hosts
from tests.cluster.studies import are_side_by_side, check_finished, create, runs_of, told_by_ranks
from tests.conftest import Dsopt

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]


def placed(dsopt: Dsopt, found: Hosts, slots: int) -> Dsopt:
    """The command with these nodes in a host file of its folder."""
    dsopt.environment |= found.environment
    (dsopt.cwd / "hosts").write_text(found.host_file(slots))
    return dsopt


@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun", "accelerate"])
def test_a_study_over_two_nodes_packs_its_runs_side_by_side(dsopt: Dsopt, ssh_hosts: Hosts, launcher: str) -> None:
    placed(dsopt, ssh_hosts, slots=2)
    config = {"train_micro_batch_size_per_gpu": [4, 8, 16], "zero_optimization": {"stage": [1, 2]}}
    create(dsopt, launcher, nodes=2, ranks=1, ds_config=config, confirmation={"finalists": 1, "rounds": 1})
    dsopt("worker", "simulated", "--hostfile", "hosts")
    runs = check_finished(dsopt)
    assert told_by_ranks(dsopt) == ["rank 0 of 2 on node1", "rank 1 of 2 on node2"]
    assert are_side_by_side(runs)
    assert not [run for run in runs if run["state"] == "failed"], runs


def test_a_command_with_a_host_file_needs_no_option_of_the_worker(dsopt: Dsopt, ssh_hosts: Hosts) -> None:
    placed(dsopt, ssh_hosts, slots=2)
    create(dsopt, "deepspeed", nodes=1, ranks=2, more="--hostfile hosts --force_multi")
    dsopt("worker", "simulated")
    assert are_side_by_side(check_finished(dsopt))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ranks_end_with_the_worker(dsopt: Dsopt, tmp_path: Path, number: int) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with hosts(folder, "node1", "node2") as found:
        placed(dsopt, found, slots=2)
        create(dsopt, "deepspeed", nodes=2, ranks=1)
        before = present(folder)
        worker = dsopt.start("worker", "simulated", "--hostfile", "hosts")
        log = dsopt.cwd / "autotuning_results" / "baseline" / "stdout.log"
        wait_until(lambda: log.exists() and log.read_text().count("rank ") == 2, "both ranks run")
        assert len(present(folder) - before) >= 4
        worker.send_signal(number)
        worker.communicate(timeout=60)
        wait_until(lambda: present(folder) == before, "nothing is left on the nodes")


def test_a_node_that_fails_is_no_fault_of_the_candidate(dsopt: Dsopt, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with hosts(folder, "node1", "node2", "node3") as found:
        placed(dsopt, found, slots=1)
        create(dsopt, "deepspeed", nodes=2, ranks=1)
        worker = dsopt.start("worker", "simulated", "--hostfile", "hosts")
        log = dsopt.cwd / "autotuning_results" / "baseline" / "stdout.log"
        wait_until(lambda: log.exists() and "node2" in log.read_text(), "a rank runs on node2")
        found.nodes["node2"].kill()
        output, _ = worker.communicate(timeout=600)
        assert worker.returncode == 0, output
    runs = check_finished(dsopt)
    [lost] = [run for run in runs if run["reason"] == "hardware"]
    assert "node 'node2': the connection has ended" in lost["message"]
    assert "node node2 is avoided from now on" in output
    assert not [run for run in runs if run["state"] == "failed" and run is not lost]


def test_a_node_that_does_not_answer_is_named(dsopt: Dsopt, ssh_hosts: Hosts) -> None:
    placed(dsopt, ssh_hosts, slots=1)
    (dsopt.cwd / "hosts").write_text("node1 slots=1\nnode9 slots=1\n")
    create(dsopt, "deepspeed", nodes=2, ranks=1)
    output, _ = dsopt.start("worker", "simulated", "--hostfile", "hosts").communicate(timeout=300)
    assert "node 'node9': the connection has ended (exit code 255): ssh: Could not resolve hostname node9" in output
    assert {run["state"] for run in runs_of(dsopt)} == {"failed"}
