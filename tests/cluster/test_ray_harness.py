"""The tests' Ray does what tests need of it, and leaves nothing."""

import pytest

from tests.cluster.left import present
from tests.cluster.nodes import wait_until
from tests.cluster.raylets import Raylets, raylets

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("ray")]

SPREAD = """
import os, socket
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ray.init(log_to_driver=False, logging_level="ERROR")
group = placement_group([{"CPU": 1, "GPU": 2}] * 2, strategy="STRICT_SPREAD")
ray.get(group.ready(), timeout=60)

@ray.remote(num_cpus=1, num_gpus=2)
def where():
    return socket.gethostname(), os.environ["CUDA_VISIBLE_DEVICES"]

at = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i) for i in range(2)]
print("placed", sorted(ray.get([where.options(scheduling_strategy=one).remote() for one in at], timeout=60)))
"""
COUNT = """
import ray
ray.init(log_to_driver=False, logging_level="ERROR")
print("alive", sorted(node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]))
"""


def test_a_strict_spread_takes_the_gpus_of_both_nodes(ray_cluster: Raylets) -> None:
    told = ray_cluster.python(SPREAD)
    assert told.rpartition("placed ")[2] == "[('node1', '0,1'), ('node2', '0,1')]\n"


def test_all_is_gone_in_the_end_also_after_a_node_failed() -> None:
    with raylets("node1") as cluster:
        folder = cluster.folder
        assert "alive ['head', 'node1']" in cluster.python(COUNT)
        assert any(word.startswith("process") for word in present(folder))
        cluster.nodes["node1"].kill()
        wait_until(lambda: "alive ['head']" in cluster.python(COUNT), "Ray has noticed")
    assert not [word for word in present(folder) if not word.startswith("mount")]
    assert not folder.exists()
