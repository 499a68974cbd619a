"""Every query on leases, one named function each, as `queries.py` has those on the other tables."""

import zlib
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from dsopt.store.clock import since
from dsopt.store.queries import Row, insert_into
from dsopt.store.tables import attempts, leases, workers


def lock_nodes(connection: sa.Connection, nodes: Collection[str]) -> None:
    """Lets nobody else look at the leases of these nodes and add to them until this transaction ends.

    Two that lock several nodes do so in the same order. An SQLite transaction that writes is alone anyway.
    """
    if connection.dialect.name == "postgresql":
        for key in sorted({zlib.crc32(f"dsopt:leases of {node}".encode()) for node in nodes}):
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))


def lease(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> set[tuple[str, str]]:
    """Gives devices and ports to attempts. Returns the node and name of each that no other attempt has."""
    statement = insert_into(connection.dialect.name)(leases).on_conflict_do_nothing()
    added = connection.execute(statement.returning(leases.c.node, leases.c.device), rows)
    return {(node, device) for node, device in added}


def leases_on(connection: sa.Connection, *nodes: str) -> Sequence[Row]:
    """The leases of these nodes."""
    return connection.execute(sa.select(leases).where(leases.c.node.in_(nodes))).mappings().all()


def leases_left(connection: sa.Connection) -> Sequence[Row]:
    """The leases whose attempt is over, or gone, on every node; those of a worker that is there are its own.

    `over_seconds`: for how long it is over; None: it is gone.
    """
    is_over = sa.or_(attempts.c.state.is_(None), attempts.c.state != "running")
    owners = sa.select(workers.c.id)
    over = since(connection, attempts.c.finished_at).label("over_seconds")
    query = sa.select(leases, over).outerjoin(attempts, attempts.c.id == leases.c.attempt_id)
    query = query.where(is_over, leases.c.attempt_id.not_in(owners))
    return connection.execute(query.order_by(leases.c.id)).mappings().all()


def end_leases(connection: sa.Connection, attempt_id: str, *, node: str | None = None) -> None:
    """Frees what an attempt holds: all of it, or what it holds on one node."""
    where = [leases.c.attempt_id == attempt_id]
    if node is not None:
        where.append(leases.c.node == node)
    connection.execute(sa.delete(leases).where(*where))
