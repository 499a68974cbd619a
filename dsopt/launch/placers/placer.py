"""What dsopt must know of an engine that has several nodes: which devices there are, and how a program starts there."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from dsopt.launch.placement import Place, Placement, Reach


class Placer(ABC):
    """Nodes that a worker's runs may use. `docs/extending.md` shows how to add another kind.

    Attributes:
        name: what people call it.
        is_granting: whether a program that is started there sees the devices that it was granted and no others.
        scope: within what the devices are counted, such as the number of a job; empty: on their nodes.
    """

    name: ClassVar[str]
    is_granting: ClassVar[bool] = False
    scope: str = ""

    @abstractmethod
    def hosts(self) -> Mapping[str, tuple[int, ...]]:
        """The devices that there are, by node, in order.

        Raises:
            DsoptError: that cannot be found out.
        """

    @abstractmethod
    def reach(self, node: str, devices: int) -> Reach:
        """How a program is started on a node for so many of its devices."""

    @property
    def has_gpus(self) -> bool | None:
        """Whether the devices are GPUs; None: what they are on the worker's own node."""
        return None

    def place(self, chosen: Mapping[str, tuple[int, ...]]) -> Placement:
        """Where a run takes place that has leased these devices."""
        return Placement(
            places=tuple(
                Place(
                    node=node,
                    devices=devices,
                    reach=self.reach(node, len(devices)),
                    is_granted=self.is_granting,
                )
                for node, devices in chosen.items()
            )
        )

    def __str__(self) -> str:
        hosts = self.hosts()
        return f"{sum(map(len, hosts.values()))} devices of {len(hosts)} nodes ({self.name})"
