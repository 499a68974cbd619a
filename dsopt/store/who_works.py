"""Who works on what, for people who look: it changes nothing, and a role that can only read may ask."""

from collections.abc import Iterable, Sequence
from typing import Final

import sqlalchemy as sa

from dsopt.store.clock import since
from dsopt.store.leases import FILES
from dsopt.store.own_lease import NODE_SPEED
from dsopt.store.queries import Row
from dsopt.store.tables import attempts, leases, studies, workers

_IS_DEVICE: Final = leases.c.device.like("_pu:%")  # not a port, and not a node as a whole


def running_attempts(connection: sa.Connection, study_id: str | None = None) -> Sequence[Row]:
    """Every running attempt, or those of one study, oldest first, with its study's name and its age in seconds."""
    age = since(connection, attempts.c.started_at).label("running_seconds")
    kept = ("worker_id", "node", "stage", "candidate", "round")
    query = (
        sa.select(*(attempts.c[key] for key in kept), studies.c.name.label("study"), age)
        .join(studies, studies.c.id == attempts.c.study_id)
        .where(attempts.c.state == "running")
        .order_by(attempts.c.started_at)
    )
    if study_id is not None:
        query = query.where(attempts.c.study_id == study_id)
    return connection.execute(query).mappings().all()


def holders_on(connection: sa.Connection, nodes: Iterable[str], *, without: str) -> list[tuple[int, str | None, str]]:
    """Who has devices of nodes: how many, the study's name, the node of the worker that runs it.

    The name is None if the study is deleted, and empty if a worker measures its node.

    Args:
        nodes: the nodes, by the names in their leases.
        without: a worker whose own runs do not count.
    """
    count = sa.func.count(sa.distinct(leases.c.node + "/" + leases.c.device))
    is_measuring = sa.or_(workers.c.id.is_not(None), leases.c.run_dir.contains(f"/{NODE_SPEED}"))
    name = sa.case((is_measuring, ""), else_=studies.c.name)
    query = (
        sa.select(count, name, sa.func.coalesce(attempts.c.node, sa.func.min(leases.c.node)))
        .select_from(leases.outerjoin(attempts, attempts.c.id == leases.c.attempt_id))
        .outerjoin(studies, studies.c.id == attempts.c.study_id)
        .outerjoin(workers, workers.c.id == leases.c.attempt_id)
        .where(leases.c.node.in_(list(nodes)), _IS_DEVICE)
        .where(sa.or_(attempts.c.worker_id.is_(None), attempts.c.worker_id != without))
        .group_by(name, attempts.c.node)
        .order_by(name, attempts.c.node)
    )
    return [(number, name, on) for number, name, on in connection.execute(query)]


def holder_of_files(connection: sa.Connection, files: str) -> tuple[str, str | None] | None:
    """Whose run has a folder for itself: the study's name, empty if it is deleted, and the worker. None: nobody's."""
    query = (
        sa.select(sa.func.coalesce(studies.c.name, ""), attempts.c.worker_id)
        .select_from(leases.outerjoin(attempts, attempts.c.id == leases.c.attempt_id))
        .outerjoin(studies, studies.c.id == attempts.c.study_id)
        .where(leases.c.node == FILES, leases.c.device == files)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else (row[0], row[1])


def folders_of_runs(connection: sa.Connection) -> list[str]:
    """The run directories of all runs of which something may go on."""
    return [*connection.execute(sa.select(leases.c.run_dir).distinct().order_by(leases.c.run_dir)).scalars()]


def studies_now(connection: sa.Connection) -> Sequence[Row]:
    """Every study's id, name, state and version, oldest first."""
    kept = (studies.c.id, studies.c.name, studies.c.state, studies.c.version)
    return connection.execute(sa.select(*kept).order_by(studies.c.created_at, studies.c.name)).mappings().all()


def devices_of_workers(connection: sa.Connection) -> dict[str, int]:
    """How many devices the runs of each worker have."""
    query = (
        sa.select(attempts.c.worker_id, sa.func.count().label("held"))
        .join(leases, leases.c.attempt_id == attempts.c.id)
        .where(attempts.c.state == "running", leases.c.node != "", _IS_DEVICE)
        .group_by(attempts.c.worker_id)
    )
    return {row.worker_id: row.held for row in connection.execute(query)}
