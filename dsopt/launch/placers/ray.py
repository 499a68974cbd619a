"""The nodes of a Ray cluster: Ray alone chooses where a run takes place and which GPUs it has.

A run has a placement group. This process asks `launch/ray/driver.py` for it, which is Ray's driver.
"""

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, ClassVar, Final

from dsopt.errors import DsoptError
from dsopt.launch.placement import Place, Placement, Reach
from dsopt.launch.placers.placer import ChoosingPlacer, Standing
from dsopt.launch.ray.connection import Connection
from dsopt.study.own_programs import own_program
from dsopt.study.wanted import Wanted

_LIST_GPUS: Final = "dsopt.launch.gpus"
_MOST_FAILURES: Final = 3  # placement groups in a row whose actors did not start
_KEPT_SECONDS: Final = 10.0  # what was granted, until it is fetched


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What a placement group is of: so many nodes, with so many devices each, without some nodes."""

    nodes: int
    devices: int
    without: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Asked:
    """A placement group that was asked for, and what came of it so far."""

    key: str
    shape: _Shape
    wake: Callable[[], None]
    standing: Standing = "asked"
    placement: Placement | None = None
    granted_at: float = 0.0


class Ray(ChoosingPlacer):
    """A Ray cluster.

    Args:
        address: `HOST:PORT` of its head, or `auto` for the one that this node is of.
    """

    name: ClassVar = "Ray"

    def __init__(self, address: str) -> None:
        if find_spec("ray") is None:
            raise DsoptError("--ray: Ray is not installed here. Install it: pip install 'dsopt[ray]'")
        if not address or "://" in address:
            raise DsoptError(
                f"--ray: {address!r} is not an address that a worker can use. Expected HOST:PORT of the head, as 'ray "
                "start' prints it, or auto. Start the worker on a node of the cluster, or in a job of it."
            )
        self._address = address
        self._connecting = threading.Lock()
        self._connection: Connection | None = None
        self._lock = threading.Lock()  # of what follows
        self._alive: dict[str, tuple[int, int]] = {}  # GPUs and CPUs of each node
        self._seen: dict[str, tuple[int, int]] = {}  # also of nodes that Ray has lost
        self._asked: _Asked | None = None
        self._failures: list[str] = []  # in a row

    def hosts(self) -> Mapping[str, tuple[int, ...]]:
        """The GPUs of each node, or if no node has any, its CPUs. A node that Ray has lost counts: it may come back.

        Raises:
            DsoptError: Ray cannot be reached.
        """
        has_gpus = self.has_gpus
        with self._lock:
            return _devices(self._seen, has_gpus=has_gpus)

    @property
    def has_gpus(self) -> bool:
        """Whether a node has a GPU, and training is not to be on the CPU."""
        self._connected()
        with self._lock:
            return os.environ.get("DS_ACCELERATOR") != "cpu" and any(gpus for gpus, _ in self._seen.values())

    @property
    def standing(self) -> Standing:
        """What became of the last request."""
        with self._lock:
            return "none" if self._asked is None else self._asked.standing

    def acquire(self, wanted: Wanted, avoided: Sequence[str], wake: Callable[[], None]) -> Placement | None:
        """The placement group of a run, once Ray has placed it and an actor holds each of its bundles.

        Raises:
            DsoptError: Ray cannot be reached any more, or does not start actors.
        """
        connection, kind = self._connected(), "GPU" if self.has_gpus else "CPU"
        with self._lock:
            shape = self._shape(wanted, avoided, has_gpus=kind == "GPU")
            if len(self._failures) >= _MOST_FAILURES:
                why, self._failures = self._failures[-1], []
                raise DsoptError(f"--ray {self._address}: Ray grants devices, and does not start actors there: {why}")
            asked = self._asked
            if asked is not None and asked.shape == shape:
                if asked.placement is not None:
                    self._asked = None
                return asked.placement
            self._forget(connection)
            asked = self._asked = _Asked(key=uuid.uuid4().hex[:8], shape=shape, wake=wake)
        bundles = [{kind: shape.devices}] * shape.nodes
        list_gpus = own_program(_LIST_GPUS)
        connection.say(acquire=asked.key, bundles=bundles, avoided=shape.without, list_gpus=list_gpus)
        return None

    def release(self, placement: Placement) -> None:
        """Gives a placement group back."""
        connection = self._connection
        if connection is not None:
            connection.say(release=placement.grant)

    def close(self) -> None:
        """Ends Ray's driver; Ray takes back whatever it has."""
        with self._connecting:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            self._asked = None

    def _connected(self) -> Connection:
        """The connection, which the first call makes.

        Raises:
            DsoptError: Ray cannot be used, or the connection has ended.
        """
        with self._connecting:
            if self._connection is None:
                self._connection = Connection(self._address, self._take)
                self._take(self._connection.first)
            connection = self._connection
        if connection.problem is not None:
            self.close()
            raise DsoptError(
                f"--ray {self._address}: the connection to Ray has ended: {connection.problem}. Nothing that was "
                "recorded is lost. Start the worker again when Ray is back."
            )
        return connection

    def _shape(self, wanted: Wanted, avoided: Sequence[str], *, has_gpus: bool) -> _Shape:
        """What to ask for; without the nodes to avoid, if the others that live can ever suffice."""
        hosts = _devices(self._alive, has_gpus=has_gpus)
        others = {name: indices for name, indices in hosts.items() if name not in avoided}
        can_avoid = replace(wanted, hosts=others).can_ever_be
        largest = sorted(map(len, (wanted.hosts if wanted.devices is None else {}).values()), reverse=True)
        return _Shape(
            nodes=wanted.nodes,
            devices=wanted.devices or largest[wanted.nodes - 1],
            without=tuple(sorted(hosts.keys() - others.keys())) if can_avoid else (),
        )

    def _take(self, told: Mapping[str, Any]) -> None:
        """Takes in what the driver tells, from the connection's thread; every second there may be nothing."""
        with self._lock:
            if "nodes" in told:
                self._alive = {name: (gpus, cpus) for name, (gpus, cpus) in told["nodes"].items()}
                self._seen |= self._alive
            asked = self._asked
            if asked is None:
                return
            is_over = self._connection is not None and self._connection.problem is not None
            if asked.key == told.get("queued"):
                asked.standing = "queued"
            elif asked.key == told.get("granted") and self._connection is not None:
                places = [_place(self._connection.socket, asked, i, one) for i, one in enumerate(told["bundles"])]
                asked.placement = Placement(places=tuple(sorted(places, key=lambda one: one.node)), grant=asked.key)
                asked.standing, asked.granted_at, self._failures = "granted", time.monotonic(), []
            elif asked.key == told.get("failed"):
                self._failures.append(told["why"])
                self._asked = None
            elif asked.placement is not None and time.monotonic() - asked.granted_at > _KEPT_SECONDS:
                self._forget(self._connection)
                return
            elif not is_over:
                return
        asked.wake()

    def _forget(self, connection: Connection | None) -> None:
        """Gives back what was asked for and not fetched."""
        asked, self._asked = self._asked, None
        if asked is not None and connection is not None:
            connection.say(release=asked.key)


def _devices(nodes: Mapping[str, tuple[int, int]], *, has_gpus: bool) -> dict[str, tuple[int, ...]]:
    counts = {name: gpus if has_gpus else cpus for name, (gpus, cpus) in nodes.items()}
    return {name: tuple(range(count)) for name, count in sorted(counts.items()) if count}


def _place(socket: str, asked: _Asked, number: int, bundle: Mapping[str, Any]) -> Place:
    """One bundle: its devices by the numbers that Ray's actor sees, which of CPUs mean nothing."""
    gpus: list[str] = bundle["gpus"]
    are_numbers = bool(gpus) and all(name.isdecimal() for name in gpus)
    devices = tuple(map(int, gpus)) if are_numbers else tuple(range(asked.shape.devices))
    uuids = bundle["uuids"] if are_numbers else {str(i): name for i, name in enumerate(gpus)}
    return Place(
        node=bundle["node"],
        devices=devices,
        reach=Reach(words=own_program("dsopt.launch.ray.bridge", socket, asked.key, str(number)), is_ended=True),
        is_granted=True,
        address=bundle["address"],
        uuids={index: uuids[str(index)] for index in devices if str(index) in uuids},
    )
