"""What a run wants of several nodes, and which of the free devices it gets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Hosts = Mapping[str, Sequence[int]]  # indices of devices, by node


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a run wants of the nodes that there are.

    Attributes:
        hosts: the devices that it may take, by node, in order.
        nodes: how many of the nodes.
        devices: how many devices of each; None: all that `hosts` names.
    """

    hosts: Hosts
    nodes: int
    devices: int | None = None

    def choose(self, free: Hosts, last: Sequence[str] = ()) -> dict[str, tuple[int, ...]] | None:
        """The devices that it gets, by node in the order of `hosts`; None: too few are free.

        It fills nodes up, so that large runs find whole ones.

        Args:
            free: the devices that nobody has.
            last: nodes that it takes only if there are no others.
        """
        left = {name: [i for i in indices if i in free.get(name, ())] for name, indices in self.hosts.items()}
        usable = [name for name in self.hosts if self._suffices(name, left[name])]
        usable.sort(key=lambda name: (name in last, len(left[name]) if self.devices is not None else 0))
        chosen = set(usable[: self.nodes])
        if len(chosen) < self.nodes:
            return None
        return {name: tuple(left[name][: self.devices]) for name in self.hosts if name in chosen}

    @property
    def can_ever_be(self) -> bool:
        """Whether the nodes have enough devices when nothing runs on them."""
        return self.choose(self.hosts) is not None

    @property
    def side_by_side(self) -> int:
        """How many such runs the nodes bear at once, at most."""
        if self.devices is None:
            return len(self.hosts) // self.nodes
        return sum(len(indices) // self.devices for indices in self.hosts.values()) // self.nodes

    def _suffices(self, name: str, left: Sequence[int]) -> bool:
        return len(left) == len(self.hosts[name]) if self.devices is None else len(left) >= self.devices
