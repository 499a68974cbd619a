"""Where a run over several nodes takes place: its nodes, the devices of each, and how to start a program there."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How a program is started on a node, with pipes to its input and output.

    Attributes:
        words: what to put in front of its argument list; none: this node.
        is_shell: whether a shell there takes the argument list apart, as with ssh.
        is_ended: whether an engine ends the program there once the connection to it is lost.
    """

    words: tuple[str, ...] = ()
    is_shell: bool = False
    is_ended: bool = False

    def argv(self, program: Sequence[str]) -> list[str]:
        """The argument list that starts a program there from here."""
        return [*self.words, *([shlex.join(program)] if self.is_shell else program)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One node of a run.

    Attributes:
        node: its name.
        devices: indices of its devices, one a rank.
        reach: how to start a program there.
        is_granted: whether whoever grants the devices also shows no others to programs there.
        address: that other nodes reach it by; None: its first one.
        uuids: what identifies its devices wherever they are seen from, by index, as far as that is known here.
    """

    node: str
    devices: tuple[int, ...]
    reach: Reach
    is_granted: bool = False
    address: str | None = None
    uuids: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The nodes of a run, in the order of its ranks.

    Attributes:
        places: the nodes.
        grant: what an engine that has chosen them itself calls this; None: dsopt's leases have chosen.
    """

    places: tuple[Place, ...]
    grant: str | None = None

    @property
    def counts(self) -> tuple[int, ...]:
        """Ranks of each node."""
        return tuple(len(place.devices) for place in self.places)

    def node_of(self, rank: int) -> str | None:
        """The node that has a rank."""
        for place in self.places:
            if rank < len(place.devices):
                return place.node
            rank -= len(place.devices)
        return None
