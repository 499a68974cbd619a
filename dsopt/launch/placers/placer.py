"""What dsopt must know of an engine that has several nodes: which devices there are, and how a program starts there."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, TypeAlias

from dsopt.launch.placement import Place, Placement, Reach
from dsopt.study.wanted import Wanted

Standing: TypeAlias = Literal["none", "asked", "queued", "granted"]


class Placer(ABC):
    """Nodes that a worker's runs may use: either dsopt's leases choose devices there, or the engine does.

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

    @property
    def has_gpus(self) -> bool | None:
        """Whether the devices are GPUs; None: what they are on the worker's own node."""
        return None

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Ends what it has opened; a later use opens it again."""

    def __str__(self) -> str:
        hosts = self.hosts()
        return f"{sum(map(len, hosts.values()))} devices of {len(hosts)} nodes ({self.name})"


class LeasingPlacer(Placer):
    """Nodes on which dsopt's leases choose devices. `docs/extending.md` shows how to add another kind."""

    @abstractmethod
    def reach(self, node: str, devices: int) -> Reach:
        """How a program is started on a node for so many of its devices."""

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


class ChoosingPlacer(Placer):
    """Nodes on which the engine alone chooses devices, and dsopt's leases record what it has granted."""

    is_granting: ClassVar = True

    @abstractmethod
    def acquire(self, wanted: Wanted, avoided: Sequence[str], wake: Callable[[], None]) -> Placement | None:
        """The devices of a run, which it has until they are released. None: there are none yet, and they are asked for.

        It does not wait. What is granted and not fetched by another call goes back after some seconds.

        Args:
            wanted: the numbers of nodes and devices.
            avoided: nodes to take only if the others can never suffice.
            wake: called, from any thread, when another call is worth it.

        Raises:
            DsoptError: there will be none.
        """

    @abstractmethod
    def release(self, placement: Placement) -> None:
        """Gives back what a run had; its processes are gone. Does not wait."""

    @property
    @abstractmethod
    def standing(self) -> Standing:
        """What became of the last request: the engine looks (`asked`), has no room (`queued`), or there is none."""
