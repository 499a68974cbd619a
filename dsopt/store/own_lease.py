"""What a worker leases to itself: all of its devices, while it measures its node and nobody may disturb that."""

from pathlib import Path
from typing import Final

import sqlalchemy as sa

from dsopt.launch.devices import DevicePool
from dsopt.store import lease_queries, leases, queries
from dsopt.store.transactions import WorkerGone, writing
from dsopt.store.workers import Registration

NODE_SPEED: Final = "node-speed-"  # begins the names of the folders of such leases


def take_node(engine: sa.Engine, me: Registration, pool: DevicePool, run_dir: Path) -> None:
    """Leases a pool's devices to a worker itself, if nobody has any device of its node.

    Args:
        engine: of the database.
        me: the worker.
        pool: its devices.
        run_dir: what the processes that use them meanwhile are known by.

    Raises:
        DevicesTaken: somebody has one.
        Fenced: the worker is gone.
    """
    with writing(engine) as connection:
        if queries.keep_worker(connection, me.id) is None:
            raise WorkerGone
        lease_queries.end_leases(connection, me.id)  # of a try whose answer was lost with the connection
        request = leases.Request(pool=pool, count=len(pool.indices), is_exclusive=True)
        leases.take(connection, me, me.id, run_dir, request)


def leave_node(engine: sa.Engine, me: Registration) -> None:
    """Frees what a worker had leased to itself."""
    with writing(engine) as connection:
        lease_queries.end_leases(connection, me.id)
