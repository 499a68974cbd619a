"""Devices and ports given to attempts: taken in one transaction, free again when the processes are known to be gone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from dsopt.launch.devices import DevicePool, free_ports
from dsopt.launch.processes import kill_all
from dsopt.store import queries
from dsopt.store.transactions import DevicesTaken, writing
from dsopt.store.workers import Registration

_PORTS_TRIED: Final = 8


def take(
    connection: sa.Connection, me: Registration, attempt_id: str, run_dir: Path, pool: DevicePool, count: int
) -> tuple[DevicePool, int]:
    """Leases `count` devices of a pool and a port to an attempt.

    Raises:
        DevicesTaken: fewer are free now.
    """
    values = {"node": me.node, "host": me.host, "run_dir": str(run_dir), "attempt_id": attempt_id}
    held = {row["device"] for row in queries.leases_on(connection, me.node)}
    free = {name: index for index, name in zip(pool.indices, pool.names(), strict=True) if name not in held}
    wanted = list(free)[:count]
    if len(wanted) < count or (wanted and len(queries.lease(connection, wanted, values)) < count):
        raise DevicesTaken
    for _, port in zip(range(_PORTS_TRIED), free_ports(), strict=False):
        if queries.lease(connection, [f"port:{port}"], values):
            return DevicePool(kind=pool.kind, indices=tuple(sorted(free[name] for name in wanted))), port
    raise DevicesTaken


def find_orphans(connection: sa.Connection, me: Registration) -> dict[str, Path]:
    """The attempts that hold devices of this node although they are over, each with its run directory."""
    rows = queries.leases_on(connection, me.node)
    return {row["attempt_id"]: Path(row["run_dir"]) for row in rows if row["state"] != "running"}


def sweep(engine: sa.Engine, orphans: Mapping[str, Path]) -> None:
    """Frees devices that runs without a worker held, after ending their processes.

    Whoever recorded that such a run is lost may be anywhere; only on its node can its processes be ended.
    """
    for attempt_id, run_dir in orphans.items():
        if kill_all(run_dir):
            with writing(engine) as connection:
                queries.end_leases(connection, attempt_id)
