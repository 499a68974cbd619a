"""Runs over the nodes of a host file, by real ssh: packed side by side, ended with the worker, and not with a node."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsopt.study.host_file import USUAL_HOST_FILE
from tests.cluster.left import present
from tests.cluster.nodes import wait_until
from tests.cluster.sshd import Hosts, hosts
from tests.cluster.studies import are_side_by_side, check_finished, create, let_two_meet, runs_of, told_by_ranks
from tests.conftest import SCRIPTS, Dsopt, start_process
from tests.studies import write_study

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("ssh")]


def placed(dsopt: Dsopt, found: Hosts, slots: int) -> Dsopt:
    """The command with these nodes in a host file of its folder."""
    dsopt.environment |= found.environment
    (dsopt.cwd / "hosts").write_text(found.host_file(slots))
    return dsopt


@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun", "accelerate"])
def test_a_study_over_two_nodes_packs_its_runs_side_by_side(dsopt: Dsopt, ssh_hosts: Hosts, launcher: str) -> None:
    placed(dsopt, ssh_hosts, slots=2)
    let_two_meet(dsopt)
    config = {"train_micro_batch_size_per_gpu": [4, 8, 16], "zero_optimization": {"stage": [1, 2]}}
    create(dsopt, launcher, nodes=2, ranks=1, ds_config=config, confirmation={"finalists": 1, "rounds": 1})
    dsopt("worker", "simulated", "--hostfile", "hosts")
    runs = check_finished(dsopt)
    assert told_by_ranks(dsopt) == ["rank 0 of 2 on node1", "rank 1 of 2 on node2"]
    assert are_side_by_side(runs)
    assert not [run for run in runs if run["state"] == "failed"], runs


def test_a_command_with_a_host_file_needs_no_option_of_the_worker(dsopt: Dsopt, ssh_hosts: Hosts) -> None:
    placed(dsopt, ssh_hosts, slots=2)
    let_two_meet(dsopt)
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


def test_a_session_that_ends_is_no_fault_of_the_candidate(dsopt: Dsopt, ssh_hosts: Hosts) -> None:
    placed(dsopt, ssh_hosts, slots=1)
    create(dsopt, "deepspeed", nodes=2, ranks=1)
    before = present(ssh_hosts.config.parent)
    worker = dsopt.start("worker", "simulated", "--hostfile", "hosts")
    log = dsopt.cwd / "autotuning_results" / "baseline" / "stdout.log"
    wait_until(lambda: log.exists() and "node2" in log.read_text(), "a rank runs on node2")
    [session] = ssh_hosts.daemons["node2"].children
    session.kill()
    output, _ = worker.communicate(timeout=300)
    assert worker.returncode == 0, output
    runs = check_finished(dsopt)
    [lost] = [run for run in runs if run["state"] == "failed"]
    assert (lost["reason"], lost["candidate"]) == ("hardware", "baseline")
    assert "node 'node2': the connection has ended" in lost["message"]
    wait_until(lambda: present(ssh_hosts.config.parent) <= before, "nothing is left on the nodes")


@pytest.fixture
def usual_folder() -> Iterator[Path]:
    """The folder of the host file that DeepSpeed looks for if a command names none. Here it stays empty."""
    path = Path(USUAL_HOST_FILE).parent
    path.mkdir(exist_ok=True)
    yield path
    with contextlib.suppress(OSError):  # this machine has files there, or another test needs it
        path.rmdir()


def test_the_usual_host_file_is_found(dsopt: Dsopt, ssh_hosts: Hosts, usual_folder: Path, tmp_path: Path) -> None:
    dsopt.environment |= ssh_hosts.environment
    (tmp_path / "usual").mkdir()
    (tmp_path / "usual" / Path(USUAL_HOST_FILE).name).write_text(ssh_hosts.host_file(1))
    create(dsopt, "deepspeed", nodes=2, ranks=1)
    only_here = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"']
    words = [
        *only_here,
        str(tmp_path / "usual"),
        str(usual_folder),
        sys.executable,
        "-m",
        "dsopt",
        "worker",
        "simulated",
    ]
    worker = start_process(words, dsopt.cwd, dsopt.environment)
    output, _ = worker.communicate(timeout=300)
    assert worker.returncode == 0, output
    check_finished(dsopt)
    assert told_by_ranks(dsopt) == ["rank 0 of 2 on node1", "rank 1 of 2 on node2"]


def test_each_node_has_as_many_ranks_as_slots_without_a_folder_in_common(dsopt: Dsopt, tmp_path: Path) -> None:
    """The results of each node are a file system of its own. What ranks wrote there comes back by ssh."""
    (tmp_path / "cluster").mkdir()
    with hosts(tmp_path / "cluster", "node1", "node2") as found:
        placed(dsopt, found, slots=1)
        (dsopt.cwd / "hosts").write_text("node1 slots=1\nnode2 slots=2\n")
        command = f"deepspeed --hostfile hosts {SCRIPTS / 'pretends.py'} --deepspeed_config ds.json"
        write_study(dsopt.cwd, command=command)
        dsopt("study", "create", "study.yaml")
        results = dsopt.cwd / "autotuning_results"
        results.mkdir()
        for node in found.nodes.values():
            node.run("mount", "-t", "tmpfs", "tmpfs", str(results))
        dsopt("worker", "simulated")
        for node in found.nodes.values():
            assert node.run("ls", "-A", str(results)) == ""
    check_finished(dsopt)
    ranks = ["rank 0 of 3 on node1", "rank 1 of 3 on node2", "rank 2 of 3 on node2"]
    assert told_by_ranks(dsopt) == ranks
    assert (results / "ds_config_optimal.json").exists()


def test_a_node_that_does_not_answer_is_named(dsopt: Dsopt, ssh_hosts: Hosts) -> None:
    placed(dsopt, ssh_hosts, slots=1)
    (dsopt.cwd / "hosts").write_text("node1 slots=1\nnode9 slots=1\n")
    create(dsopt, "deepspeed", nodes=2, ranks=1)
    output, _ = dsopt.start("worker", "simulated", "--hostfile", "hosts").communicate(timeout=300)
    assert "node 'node9': the connection has ended (exit code 255): ssh: Could not resolve hostname node9" in output
    assert {run["state"] for run in runs_of(dsopt)} == {"failed"}
