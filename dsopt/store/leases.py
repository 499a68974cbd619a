"""Devices and ports given to attempts: taken in one transaction, free again when the processes are known to be gone.

A row gives one name of a device to one attempt. A CPU slot has one name: node and `cpu:0`. A GPU has its UUID, whatever
the node is called (`_ANYWHERE`), and on its node `gpu:0/UUID`: jobs that see other GPUs of the node may count them from
0, too. What a launcher takes by a host file is named as there: node and `gpu:0`, which is that GPU whatever its UUID.
What an engine has granted, as Slurm does, is counted within that grant: node and `gpu:0@JOB`.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from dsopt.launch.device_locks import without_reserved
from dsopt.launch.devices import DevicePool, free_ports
from dsopt.launch.processes import end_run
from dsopt.protocol.presence import may_be_present
from dsopt.protocol.run_dir import RunDir
from dsopt.store import lease_queries as queries
from dsopt.store.queries import Row
from dsopt.store.transactions import DevicesTaken, writing
from dsopt.store.workers import Registration
from dsopt.study.wanted import Wanted

_PORTS_TRIED: Final = 8
_ANYWHERE: Final = ""  # as a node: of a name that means the same device on every node
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
    """

    pool: DevicePool
    count: int
    hosts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    wanted: Wanted | None = None
    own: str | None = None
    last: Sequence[str] = ()
    scope: str = ""
    is_exclusive: bool = False

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
    """

    devices: DevicePool
    port: int
    hosts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


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
    pool, count, hosts = request.pool, request.count, request.hosts
    among = set(request.wanted.hosts if request.wanted is not None else hosts)
    if count or among:
        queries.lock_nodes(connection, {me.node, *among})
    held, slots = _held(connection, me.node, *among)
    chosen = _choose(me, request, held, slots)
    if chosen:
        hosts = {node: indices for node, indices in chosen.items() if node != "localhost"}
        own = chosen.get(request.own or "", ())
        pool, count = replace(pool, indices=own), len(own)
    left = (index for index in without_reserved(pool).indices if _is_free(_names(me.node, pool, index), held, slots))
    free = list(itertools.islice(left, count))
    listed = [request.name_of(node, index) for node, indices in hosts.items() for index in indices]
    nodes = {*hosts, *([me.node] if free else [])}
    if len(free) < count or not _is_free(listed, held, slots) or not all(_admits(request, n, held) for n in nodes):
        raise DevicesTaken
    values = {"host": me.host, "run_dir": str(run_dir), "attempt_id": attempt_id}
    wanted = sorted({*listed, *(name for index in free for name in _names(me.node, pool, index))})
    if wanted:
        by_node = {node: [device for on, device in wanted if on == node] for node in sorted(nodes)}
        queries.note_devices(connection, attempt_id, by_node)
    wanted += [(node, _WHOLE) for node in sorted(nodes)] if request.is_exclusive else []
    # sorted, so that two transactions never wait for each other
    rows = [{**values, "node": node, "device": device} for node, device in sorted(wanted)]
    if rows and queries.lease(connection, rows) < len(rows):
        raise DevicesTaken
    for _, port in zip(range(_PORTS_TRIED), free_ports(), strict=False):
        if queries.lease(connection, [{**values, "node": me.node, "device": f"port:{port}"}]):
            uuids = {index: pool.uuids[index] for index in free if index in pool.uuids}
            indices = next(iter(chosen.values())) if chosen else tuple(sorted(free))
            return Lease(devices=DevicePool(kind=pool.kind, indices=indices, uuids=uuids), port=port, hosts=chosen)
    raise DevicesTaken


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


def _admits(request: Request, node: str, held: set[Name]) -> bool:
    """Whether those that have devices of a node let another have some, and it lets them."""
    return (node, _WHOLE) not in held and not (request.is_exclusive and any(on == node for on, _ in held))


def _held(connection: sa.Connection, *nodes: str) -> tuple[set[Name], set[Name]]:
    """The names of devices that attempts have on these nodes, and the same without UUIDs."""
    rows = queries.leases_on(connection, _ANYWHERE, *nodes)
    held = {(row["node"], row["device"]) for row in rows if not row["device"].startswith("port:")}
    return held, {(node, device.partition("/")[0]) for node, device in held}


def _names(node: str, pool: DevicePool, index: int) -> list[Name]:
    uuid = pool.uuids.get(index)
    slot = f"{pool.kind}:{index}"
    return [(node, slot)] if uuid is None else [(_ANYWHERE, uuid), (node, f"{slot}/{uuid}")]


def _is_free(names: Iterable[Name], held: set[Name], slots: set[Name]) -> bool:
    """Whether none of these names means a device that has one of those; `slots` are those without UUIDs."""
    return not any(
        (node, device) in held or (node, device.partition("/")[0]) in (held if "/" in device else slots)
        for node, device in names
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """Leases of an attempt that is over, as far as this worker may free them once its processes are gone.

    Attributes:
        attempt_id, run_dir: of the attempt.
        node: free what it holds on this node; None: all that it holds.
        is_hidden: whether it ran on this machine where this worker does not see its processes, such as in another
            container.
    """

    attempt_id: str
    run_dir: Path
    node: str | None = None
    is_hidden: bool = False


def find_orphans(connection: sa.Connection, me: Registration, pool: DevicePool) -> list[Orphan]:
    """The attempts that hold devices although they are over, and whose end this worker can see to."""
    left: dict[str, list[Row]] = {}
    for row in queries.leases_left(connection):
        left.setdefault(row["attempt_id"], []).append(row)
    found = (_orphan(attempt_id, rows, me, pool) for attempt_id, rows in left.items())
    return [orphan for orphan in found if orphan is not None]


def _orphan(attempt_id: str, rows: Sequence[Row], me: Registration, pool: DevicePool) -> Orphan | None:
    run_dir, host = Path(rows[0]["run_dir"]), rows[0]["host"]
    if host == me.host:
        return Orphan(attempt_id=attempt_id, run_dir=run_dir)
    if _boot(host) == _boot(me.host):
        return Orphan(attempt_id=attempt_id, run_dir=run_dir, is_hidden=True)
    names = {(row["node"], row["device"]) for row in rows}
    held, own = {device for node, device in names if node == _ANYWHERE}, set(pool.uuids.values())
    began = {node for node, device in names if device.startswith("port:")}
    # a name may be that of several machines, a GPU's cannot
    if held & own if held and own else me.node in began:
        return Orphan(attempt_id=attempt_id, run_dir=run_dir)  # it began here, and this machine has restarted since
    if me.node in {node for node, _ in names}:
        return Orphan(attempt_id=attempt_id, run_dir=run_dir, node=me.node)
    return None


def _boot(host: str) -> str:
    return host.partition("/")[0]


def sweep(engine: sa.Engine, orphans: Sequence[Orphan]) -> bool:
    """Frees devices that runs without a worker held, after ending their processes. Returns whether any came free.

    Whoever recorded that such a run is lost may be anywhere; only on its machine can its processes be ended.
    """
    is_any_free = False
    for orphan in orphans:
        run_dir = RunDir(orphan.run_dir)
        if end_run(run_dir) and not may_be_present(run_dir, is_hidden=orphan.is_hidden):
            with writing(engine) as connection:
                queries.end_leases(connection, orphan.attempt_id, node=orphan.node)
            if orphan.node is None:
                run_dir.remove_node_environment()
            is_any_free = True
    return is_any_free
