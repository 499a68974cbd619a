"""The nodes of a host file, reached by ssh, as DeepSpeed's launcher reaches them."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from dsopt.launch.devices import is_this_node
from dsopt.launch.placement import Reach
from dsopt.launch.placers.placer import LeasingPlacer
from dsopt.study.host_file import devices_of

# never a question that nobody answers; a connection that is dead ends within fifteen seconds
_OPTIONS: Final = (
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=20"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)


class HostFile(LeasingPlacer):
    """The nodes of a host file.

    Args:
        path: the file, with lines such as `worker-1 slots=8`.
        port: ssh's; None: as its own configuration says.
    """

    name: ClassVar = "ssh"

    def __init__(self, path: Path, port: str | None = None) -> None:
        self._path = path
        self._port = port

    def hosts(self) -> Mapping[str, tuple[int, ...]]:
        """The devices of each node, numbered from 0."""
        return devices_of(self._path, "--hostfile")

    def reach(self, node: str, devices: int) -> Reach:  # noqa: ARG002 - ssh grants no devices
        """By ssh; nothing is needed for this node."""
        if is_this_node(node):
            return Reach()
        port = () if self._port is None else ("-p", self._port)
        return Reach(words=("ssh", *_OPTIONS, *port, "--", node), is_shell=True)
