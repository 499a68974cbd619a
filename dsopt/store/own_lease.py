"""What a worker leases to itself: all of its devices, while it measures its nodes and nobody may disturb that."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from dsopt.store import lease_queries, leases, queries
from dsopt.store.transactions import WorkerGone, writing
from dsopt.store.workers import Registration

NODE_SPEED: Final = "node-speed-"  # begins the names of the folders of such leases


def take_nodes(engine: sa.Engine, me: Registration, request: leases.Request, run_dir: Path) -> leases.Lease:
    """Leases devices to a worker itself, if nobody has any device of their nodes.

    Args:
        engine: of the database.
        me: the worker.
        request: the devices.
        run_dir: what the processes that use them meanwhile are known by.

    Raises:
        DevicesTaken: somebody has one.
        Fenced: the worker is gone.
    """
    with writing(engine) as connection:
        if queries.keep_worker(connection, me.id) is None:
            raise WorkerGone
        lease_queries.end_leases(connection, me.id)  # of a try whose answer was lost with the connection
        return leases.take(connection, me, me.id, run_dir, replace(request, is_exclusive=True))


def leave_nodes(engine: sa.Engine, me: Registration) -> None:
    """Frees what a worker had leased to itself."""
    with writing(engine) as connection:
        lease_queries.end_leases(connection, me.id)
