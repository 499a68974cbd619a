"""The clusters that the tests here share, each started when a test first asks for it."""

from collections.abc import Iterator

import pytest

from tests.cluster.raylets import Raylets, raylets
from tests.cluster.slurm import Slurm, slurm
from tests.cluster.sshd import Hosts, hosts


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A Slurm with the nodes `node1` and `node2`, of eight CPUs and two GPUs each, both pretended."""
    with slurm(tmp_path_factory.mktemp("slurm"), "node1", "node2") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ssh_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """The nodes `node1` and `node2`, which answer ssh."""
    with hosts(tmp_path_factory.mktemp("ssh"), "node1", "node2") as found:
        yield found


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Raylets]:
    """A Ray cluster with `head`, `node1` and `node2`, of two CPUs each; the latter have two pretended GPUs each."""
    with raylets("node1", "node2") as cluster:
        yield cluster
