"""Nodes are as apart as machines that share a file system, and nothing outlives them."""

from pathlib import Path

import psutil
import pytest

from tests.cluster.nodes import need_nodes, nodes, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("ssh")]


@pytest.fixture(autouse=True)
def where_nodes_may_be() -> None:
    need_nodes()


def test_each_node_has_a_name_processes_and_shared_memory_of_its_own(tmp_path: Path) -> None:
    with nodes(tmp_path, "one", "two") as found:
        assert found["one"].run("hostname") == "one\n"
        look = "import socket; print(socket.gethostbyname('one'), socket.gethostbyname('two'))"
        assert found["two"].run("python3", "-c", look) == "127.0.0.2 127.0.0.3\n"
        found["one"].run("touch", "/dev/shm/here", str(tmp_path / "shared"))
        assert found["two"].run("ls", "/dev/shm", str(tmp_path / "shared")) == f"{tmp_path}/shared\n\n/dev/shm:\n"
        inodes = {node.run("readlink", "/proc/self/ns/pid") for node in found.values()}
        assert len(inodes) == 2
    assert not Path("/dev/shm/here").exists()


def test_what_runs_on_a_node_ends_with_it(tmp_path: Path) -> None:
    with nodes(tmp_path, "one") as found:
        mark = f"{tmp_path}/mark"
        command = ["bash", "-c", f"setsid sleep 987 & exec tail -f /dev/null {mark}"]
        (tmp_path / "mark").touch()
        daemon = found["one"].start(*command, log=tmp_path / "log")
        wait_until(lambda: _count_with(mark) > 0, "the program has started")
        found["one"].kill()
        wait_until(lambda: not daemon.is_alive and _count_with(mark) == 0, "it is gone", 10)


def _count_with(word: str) -> int:
    return sum(word in (process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
