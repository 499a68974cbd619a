"""The tests' ssh does what tests need of it, and leaves nothing."""

import subprocess
from pathlib import Path

import pytest

from tests.cluster.left import present
from tests.cluster.nodes import wait_until
from tests.cluster.sshd import Hosts, hosts

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("ssh")]


@pytest.mark.parametrize("name", ["node1", "node2"])
def test_plain_ssh_reaches_a_node_by_its_name(ssh_hosts: Hosts, name: str) -> None:
    assert ssh_hosts.run("ssh", name, "hostname") == f"{name}\n"


def test_pdsh_reaches_all(ssh_hosts: Hosts) -> None:
    told = ssh_hosts.run("pdsh", "-S", "-f", "1024", "-w", "node1,node2", "hostname")
    assert sorted(told.splitlines()) == ["node1: node1", "node2: node2"]


def test_a_node_reaches_the_other(ssh_hosts: Hosts) -> None:
    told = ssh_hosts.nodes["node1"].run("ssh", "node2", "hostname", environment=ssh_hosts.environment)
    assert told == "node2\n"


def test_a_stranger_is_refused(ssh_hosts: Hosts, tmp_path: Path) -> None:
    key = tmp_path / "another"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    config = tmp_path / "config"
    config.write_text(ssh_hosts.config.read_text().replace(f"{ssh_hosts.config.parent}/key", str(key)))
    tried = subprocess.run(["ssh", "-F", config, "node1", "hostname"], capture_output=True, text=True)
    assert tried.returncode == 255
    assert "Permission denied" in tried.stderr


def test_all_is_gone_in_the_end_also_with_a_session(tmp_path: Path) -> None:
    before, own = present(tmp_path), Path("~/.ssh").expanduser()
    files = sorted(own.iterdir()) if own.exists() else None
    with hosts(tmp_path, "node1", environment={"GIVEN": "a word"}) as found:
        assert found.run("ssh", "node1", "echo $GIVEN; setsid sleep 600 > /dev/null 2>&1 &") == "a word\n"
        node = found.nodes["node1"]
        wait_until(lambda: node.run("pgrep", "-c", "sleep") == "2\n", "a second sleep, next to the node's own, runs")
        assert len(present(tmp_path) - before) > 3  # the node, its server, the sleep
    assert present(tmp_path) == before
    assert (sorted(own.iterdir()) if own.exists() else None) == files
