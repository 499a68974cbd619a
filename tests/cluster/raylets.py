"""A real Ray cluster on nodes of this machine: a head without GPUs, and raylets with pretended ones."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.nodes import Daemon, Node, free_ports, need_nodes, nodes

_OBJECT_STORE_BYTES = 80_000_000
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_WAIT = """
import sys, time
from ray._raylet import GcsClient
address, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
deadline, alive = time.monotonic() + seconds, -1
while alive != count:
    if time.monotonic() > deadline:
        sys.exit(f"{alive} nodes, not {count}")
    time.sleep(0.3)
    try:
        alive = sum(node.state == 0 for node in GcsClient(address=address).get_all_node_info().values())
    except Exception as error:
        print(error)  # nobody listens so far
"""


class Raylets:
    """A Ray cluster.

    Attributes:
        nodes: by name; `head` has the controller and no GPU.
        address: for `ray.init` and `RAY_ADDRESS`, of programs that run on one of the nodes.
        environment: the variables for such programs.
        daemons: by node.
    """

    def __init__(self, folder: Path, found: dict[str, Node], port: int) -> None:
        self.folder, self.nodes = folder, found
        self.address = f"{found['head'].address}:{port}"
        self.environment = {**_QUIET, "RAY_ADDRESS": self.address}
        self.daemons: dict[str, Daemon] = {}
        self._port = port

    def start(self, name: str, *, cpus: int, gpus: int) -> None:
        """Starts Ray on a node."""
        node, is_head = self.nodes[name], name == "head"
        agent, metrics, runtime = free_ports(3)
        if is_head:
            role = [f"--port={self._port}", "--head", f"--temp-dir={self.folder}", "--include-dashboard=false"]
        else:
            role = [f"--address={self.address}"]
        self.daemons[name] = node.start(
            sys.executable, "-m", "ray.scripts.scripts", "start", *role, "--block", f"--node-ip-address={node.address}",
            f"--num-cpus={cpus}", f"--num-gpus={gpus}", "--disable-usage-stats",
            f"--object-store-memory={_OBJECT_STORE_BYTES}", "--min-worker-port=0", "--max-worker-port=0",
            f"--dashboard-agent-listen-port={agent}", f"--metrics-export-port={metrics}",
            f"--runtime-env-agent-port={runtime}",
            log=self.folder / f"{name}.log", environment=_QUIET,
        )  # fmt: skip

    def wait_for_nodes(self, count: int, seconds: float = 90) -> None:
        """Waits until so many nodes are there.

        Raises:
            AssertionError: they do not come; with what the daemons have said.
        """
        try:
            self.python(_WAIT, self.address, str(count), str(seconds), seconds=2 * seconds)
        except AssertionError as error:
            logs = "".join(f"\n{name}: {daemon.log.read_text()}" for name, daemon in self.daemons.items())
            raise AssertionError(f"{error}{logs}") from None

    def python(self, program: str, *args: str, on: str = "head", seconds: float = 120) -> str:
        """Runs a Python program on a node, with the cluster's variables, and gives what it printed."""
        return self.nodes[on].run(
            sys.executable, "-c", program, *args, environment=self.environment, seconds=seconds
        )  # fmt: skip


@contextlib.contextmanager
def raylets(*names: str, cpus: int = 2, gpus: int = 2) -> Iterator[Raylets]:
    """A Ray cluster with nodes of these names and a head. All of it ends with the context, its files included.

    Args:
        names: of the nodes besides `head`.
        cpus: that each node says it has.
        gpus: that each but `head` says it has; programs that get some have `CUDA_VISIBLE_DEVICES`.
    """
    need_ray()
    with contextlib.ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)  # short: sockets are in it
        folder = Path(stack.enter_context(temporary))
        found = stack.enter_context(nodes(folder, "head", *names))
        cluster = Raylets(folder, found, free_ports(1)[0])
        for count, name in enumerate(found, start=1):
            cluster.start(name, cpus=cpus, gpus=0 if name == "head" else gpus)
            cluster.wait_for_nodes(count)  # two that start at once in one folder take the same names of sockets
        yield cluster


def need_ray() -> None:
    """Skips a test where Ray cannot run, and says why."""
    pytest.importorskip("ray", reason="Ray is not installed: make test-cluster installs the extra dsopt[ray]")
    need_nodes()
