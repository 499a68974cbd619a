"""Devices and ports given to attempts: taken in one transaction, free again when the processes are known to be gone.

A row gives one name of a device to one attempt. A CPU slot has one name: node and `cpu:0`. A GPU has its UUID, whatever
the node is called (`ANYWHERE`), and on its node `gpu:0/UUID`: jobs that see other GPUs of the node may count them from
0, too. What a launcher takes by a host file is named as there: node and `gpu:0`, which is that GPU whatever its UUID.
What an engine has granted is counted within that grant, if it has numbers of its own: node and `gpu:0@JOB` for Slurm,
`cpu:0@GROUP` for Ray. A run that saves in the working folder has that for itself, too (`FILES`).
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from dsopt.launch.device_locks import without_reserved
from dsopt.launch.devices import DevicePool, free_ports
from dsopt.launch.placement import Placement
from dsopt.launch.placers.placer import ChoosingPlacer
from dsopt.store import lease_queries as queries
from dsopt.store.transactions import DevicesTaken, writing
from dsopt.store.workers import Registration
from dsopt.study.wanted import Wanted

_PORTS_TRIED: Final = 8
ANYWHERE: Final = ""  # as a node: of a name that means the same device on every node
FILES: Final = "files:"  # as a node: of folders, whose names are the devices
_WHOLE: Final = "node"  # as a device: all that the node has

Name = tuple[str, str]  # a node, and the device there


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an attempt needs.

    Attributes:
        pool: devices of the worker's node.
        count: how many of them.
        hosts: the devices that its launcher takes by a host file, by node, this one among them.
        wanted: what to choose among several nodes, in place of `pool` and `count`.
        own: of these nodes, the worker's own, if it is one.
        last: nodes to choose only if there are no others.
        scope: within what the devices of `wanted` are counted, such as a job; empty: on their nodes.
        is_exclusive: whether no other attempt may have devices of the same nodes meanwhile.
        granted: what an engine has chosen in place of all this.
        files: the name of a folder that it has for itself; empty: of none.
    """

    pool: DevicePool
    count: int
    hosts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    wanted: Wanted | None = None
    own: str | None = None
    last: Sequence[str] = ()
    scope: str = ""
    is_exclusive: bool = False
    granted: Placement | None = None
    files: str = ""

    @property
    def folders(self) -> list[Name]:
        """What the folder is leased as."""
        return [(FILES, self.files)] if self.files else []

    def name_of(self, node: str, index: int) -> Name:
        """What a device of several nodes is leased as."""
        return node, f"{self.pool.kind}:{index}{'@' if self.scope else ''}{self.scope}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What an attempt has got.

    Attributes:
        devices: of the worker's node; of several nodes, those of the first.
        port: for its ranks to meet at.
        hosts: devices by node, if it wanted several nodes.
        names: what its devices are leased as, by node.
    """

    devices: DevicePool
    port: int
    hosts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)


def take(connection: sa.Connection, me: Registration, attempt_id: str, run_dir: Path, request: Request) -> Lease:
    """Leases devices and a port to an attempt.

    Args:
        connection: a transaction that writes.
        me: the worker, on whose node the pool and the port are.
        attempt_id: the attempt.
        run_dir: its run directory.
        request: what it needs.

    Raises:
        DevicesTaken: fewer are free now.
    """
    if request.granted is not None:
        return _record(connection, me, attempt_id, run_dir, request, request.granted)
    pool, count, hosts = request.pool, request.count, request.hosts
    among = set(request.wanted.hosts if request.wanted is not None else hosts)
    if count or among:
        queries.lock_nodes(connection, {me.node, *among})
    held, slots = _held(connection, me.node, FILES, *among)
    chosen = _choose(me, request, held, slots)
    if chosen:
        hosts = {node: indices for node, indices in chosen.items() if node != "localhost"}
        own = chosen.get(request.own or "", ())
        pool, count = replace(pool, indices=own), len(own)
    left = (index for index in without_reserved(pool).indices if _is_free(_names(me.node, pool, index), held, slots))
    free = list(itertools.islice(left, count))
    listed = [request.name_of(node, index) for node, indices in hosts.items() for index in indices]
    nodes = {*hosts, *([me.node] if free else [])}
    is_admitted = all(_admits(request, node, held) for node in nodes)
    if len(free) < count or not is_admitted or not _is_free([*listed, *request.folders], held, slots):
        raise DevicesTaken
    values = {"host": me.host, "run_dir": str(run_dir), "attempt_id": attempt_id}
    names = {*listed, *(name for index in free for name in _names(me.node, pool, index))}
    wholes = [(node, _WHOLE) for node in nodes] if request.is_exclusive else []
    port = _lease(connection, me, values, {*names, *wholes, *request.folders})
    uuids = {index: pool.uuids[index] for index in free if index in pool.uuids}
    indices = next(iter(chosen.values())) if chosen else tuple(sorted(free))
    devices = DevicePool(kind=pool.kind, indices=indices, uuids=uuids)
    return Lease(devices=devices, port=port, hosts=chosen, names=_by_node(names, nodes))


def _record(
    connection: sa.Connection, me: Registration, attempt_id: str, run_dir: Path, request: Request, granted: Placement
) -> Lease:
    """Records what an engine has granted. CPU slots have numbers within the grant alone."""
    pool = request.pool
    values = {"host": host_of(pool) or me.host, "run_dir": str(run_dir), "attempt_id": attempt_id}
    names: set[Name] = set()
    for place in granted.places:
        if pool.kind == "gpu":
            devices = DevicePool(kind=pool.kind, indices=place.devices, uuids=place.uuids)
            names |= {name for index in place.devices for name in _names(place.node, devices, index)}
        else:
            names |= {(place.node, f"{pool.kind}:{index}@{granted.grant}") for index in place.devices}
    nodes = {place.node for place in granted.places}
    queries.lock_nodes(connection, nodes)
    held, slots = _held(connection, FILES, *nodes)
    if not _is_free({*names, *request.folders}, held, slots) or not all(_admits(request, node, held) for node in nodes):
        raise DevicesTaken
    port = _lease(connection, me, values, {*names, *request.folders})
    first = granted.places[0]
    devices = DevicePool(kind=pool.kind, indices=first.devices, uuids=first.uuids)
    hosts = {place.node: place.devices for place in granted.places}
    return Lease(devices=devices, port=port, hosts=hosts, names=_by_node(names, nodes))


def _lease(
    connection: sa.Connection,
    me: Registration,
    values: Mapping[str, str],
    names: Iterable[Name],
) -> int:
    """Leases what has these names, and a port of the worker's node, which it returns.

    Raises:
        DevicesTaken: somebody has one of them.
    """
    wanted = set(names)
    for port in itertools.islice(free_ports(), _PORTS_TRIED):
        meeting = (me.node, f"port:{port}")
        # sorted, so that two transactions never wait for each other
        rows = [{**values, "node": node, "device": device} for node, device in sorted({*wanted, meeting})]
        got = queries.lease(connection, rows)
        if not wanted <= got:
            raise DevicesTaken
        if meeting in got:
            return port
        wanted = set()  # it has them, and lacks a port
    raise DevicesTaken


def _by_node(names: Iterable[Name], nodes: Iterable[str]) -> dict[str, list[str]]:
    return {node: sorted(device for on, device in names if on == node) for node in sorted(nodes)}


def host_of(pool: DevicePool) -> str | None:
    """What stands for the machine of a run whose devices an engine grants: it ends such runs, wherever they are."""
    return f"engine:{pool.placer.name}" if isinstance(pool.placer, ChoosingPlacer) else None


def can_take(connection: sa.Connection, me: Registration, request: Request) -> bool:
    """Whether nobody has what an attempt of several nodes needs now."""
    held, slots = _held(connection, me.node, *(request.wanted.hosts if request.wanted is not None else ()))
    try:
        return bool(_choose(me, request, held, slots))
    except DevicesTaken:
        return False


def _choose(me: Registration, request: Request, held: set[Name], slots: set[Name]) -> Mapping[str, tuple[int, ...]]:
    """The devices that a request gets of several nodes; empty if it wants none of them.

    Raises:
        DevicesTaken: fewer are free now.
    """
    wanted, pool = request.wanted, request.pool
    if wanted is None:
        return {}
    mine = set(without_reserved(pool).indices)
    free = {
        node: [
            index
            for index in indices
            if _admits(request, node, held)
            and _is_free([request.name_of(node, index)], held, slots)
            and (node != request.own or (index in mine and _is_free(_names(me.node, pool, index), held, slots)))
        ]
        for node, indices in wanted.hosts.items()
    }
    chosen = wanted.choose(free, request.last)
    if chosen is None:
        raise DevicesTaken
    return chosen


def count_free(connection: sa.Connection, node: str, request: Request) -> int:
    """How many devices of a node's pool an attempt that requests some could get now."""
    held, slots = _held(connection, node)
    if not _admits(request, node, held):
        return 0
    return sum(_is_free(_names(node, request.pool, index), held, slots) for index in request.pool.indices)


def count_free_after_all(engine: sa.Engine, node: str, request: Request) -> int:
    """The same, once all that are about to lease devices of the node have: they may not have seen what is reserved."""
    with writing(engine) as connection:
        queries.lock_nodes(connection, {node})
        return count_free(connection, node, request)


def taken_of(connection: sa.Connection, kind: str, hosts: Mapping[str, Sequence[int]]) -> list[str]:
    """The nodes among several on which attempts have any of these devices, by node."""
    held, slots = _held(connection, *hosts)
    names = {node: [(node, f"{kind}:{index}") for index in indices] for node, indices in hosts.items()}
    return [node for node, devices in names.items() if (node, _WHOLE) in held or not _is_free(devices, held, slots)]


def is_folder_free(connection: sa.Connection, files: str) -> bool:
    """Whether no attempt has the folder of this name for itself."""
    return (FILES, files) not in _held(connection, FILES)[0]


def _admits(request: Request, node: str, held: set[Name]) -> bool:
    """Whether those that have devices of a node let another have some, and it lets them."""
    return (node, _WHOLE) not in held and not (request.is_exclusive and any(on == node for on, _ in held))


def _held(connection: sa.Connection, *nodes: str) -> tuple[set[Name], set[Name]]:
    """The names of devices that attempts have on these nodes, and the same without UUIDs."""
    rows = queries.leases_on(connection, ANYWHERE, *nodes)
    held = {(row["node"], row["device"]) for row in rows if not row["device"].startswith("port:")}
    return held, {(node, device.partition("/")[0]) for node, device in held}


def _names(node: str, pool: DevicePool, index: int) -> list[Name]:
    uuid = pool.uuids.get(index)
    slot = f"{pool.kind}:{index}"
    return [(node, slot)] if uuid is None else [(ANYWHERE, uuid), (node, f"{slot}/{uuid}")]


def _is_free(names: Iterable[Name], held: set[Name], slots: set[Name]) -> bool:
    """Whether none of these names means a device that has one of those; `slots` are those without UUIDs."""
    return not any(
        (node, device) in held or (node, device.partition("/")[0]) in (held if "/" in device else slots)
        for node, device in names
    )
