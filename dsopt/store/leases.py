"""Devices and ports given to attempts: taken in one transaction, free again when the processes are known to be gone.

A row gives one name of a device to one attempt. A CPU slot has one name: node and `cpu:0`. A GPU has its UUID, whatever
the node is called (`_ANYWHERE`), and on its node `gpu:0/UUID`: jobs that see other GPUs of the node may count them from
0, too. What a launcher takes by a host file is named as there: node and `gpu:0`, which is that GPU whatever its UUID.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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

_PORTS_TRIED: Final = 8
_ANYWHERE: Final = ""  # as a node: of a name that means the same device on every node

Name = tuple[str, str]  # a node, and the device there


def take(
    connection: sa.Connection,
    me: Registration,
    attempt_id: str,
    run_dir: Path,
    pool: DevicePool,
    count: int,
    hosts: Mapping[str, Sequence[int]],
) -> tuple[DevicePool, int]:
    """Leases `count` devices of a pool, devices of other nodes, and a port to an attempt.

    Args:
        connection: a transaction that writes.
        me: the worker, on whose node the pool and the port are.
        attempt_id: the attempt.
        run_dir: its run directory.
        pool: devices of this node.
        count: how many of them.
        hosts: the devices that its launcher takes by a host file, by node, this one among them.

    Raises:
        DevicesTaken: fewer are free now.
    """
    if pool.kind == "gpu" or hosts:
        queries.lock_nodes(connection, {me.node, *hosts})
    held, slots = _held(connection, me.node, *hosts)
    left = (index for index in without_reserved(pool).indices if _is_free(_names(me.node, pool, index), held, slots))
    free = list(itertools.islice(left, count))
    listed = [(node, f"{pool.kind}:{index}") for node, indices in hosts.items() for index in indices]
    if len(free) < count or not _is_free(listed, held, slots):
        raise DevicesTaken
    values = {"host": me.host, "run_dir": str(run_dir), "attempt_id": attempt_id}
    wanted = sorted({*listed, *(name for index in free for name in _names(me.node, pool, index))})
    # sorted, so that two transactions never wait for each other
    rows = [{**values, "node": node, "device": device} for node, device in wanted]
    if rows and queries.lease(connection, rows) < len(rows):
        raise DevicesTaken
    for _, port in zip(range(_PORTS_TRIED), free_ports(), strict=False):
        if queries.lease(connection, [{**values, "node": me.node, "device": f"port:{port}"}]):
            uuids = {index: pool.uuids[index] for index in free if index in pool.uuids}
            return DevicePool(kind=pool.kind, indices=tuple(sorted(free)), uuids=uuids), port
    raise DevicesTaken


def count_free(connection: sa.Connection, node: str, pool: DevicePool) -> int:
    """How many devices of a node's pool no attempt has now."""
    held, slots = _held(connection, node)
    return sum(_is_free(_names(node, pool, index), held, slots) for index in pool.indices)


def _held(connection: sa.Connection, *nodes: str) -> tuple[set[Name], set[Name]]:
    """The names that attempts have on these nodes, and the same without UUIDs."""
    held = {(row["node"], row["device"]) for row in queries.leases_on(connection, _ANYWHERE, *nodes)}
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
