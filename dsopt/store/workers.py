"""Workers in the database: who lives, since when, doing what; and how those that died are removed."""

import os
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from dsopt.launch.processes import host_identity, is_gone, start_ticks
from dsopt.store import claims, queries
from dsopt.store.heartbeat import LEASE_SECONDS
from dsopt.store.tables import new_id
from dsopt.store.transactions import writing
from dsopt.version import __version__

_LOST: Final = "its worker died while it ran"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A worker's row: its id, which no other worker ever has; its node, by name; and what its pids are relative to."""

    id: str
    node: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """A worker that is taken for dead.

    Attributes:
        id: the worker.
        is_gone: its process is known to be gone.
        beat: the last heartbeat that was seen of it; a later one shows that it lives. None if it is gone.
    """

    id: str
    is_gone: bool
    beat: float | None = None


def registration() -> Registration:
    """What this process would be known by; nobody knows it yet."""
    return Registration(id=new_id(), node=socket.gethostname(), host=host_identity())


def register(engine: sa.Engine) -> Registration:
    """Registers this process as a worker."""
    me = registration()
    values = {
        "id": me.id,
        "node": me.node,
        "host": me.host,
        "pid": os.getpid(),
        "process_started": start_ticks(os.getpid()),
        "dsopt_version": __version__,
    }
    with writing(engine) as connection:
        queries.insert_worker(connection, values)
    return me


def beat(engine: sa.Engine, me: Registration, study_id: str | None, rates: str | None) -> bool | None:
    """Records that this worker lives, and what its node does.

    Returns whether it is to drain; None: others took it and its runs for dead.
    """
    with writing(engine) as connection:
        return queries.beat(connection, me.id, study_id, rates)


def ask_to_drain(engine: sa.Engine, worker_ids: Sequence[str]) -> None:
    """Asks workers to finish their runs and to leave; each learns of it with its next heartbeat."""
    with writing(engine) as connection:
        queries.drain(connection, worker_ids)


def leave(engine: sa.Engine, me: Registration) -> None:
    """Removes the row, with whatever this worker still had."""
    _remove(engine, me.id, "its worker ended")


def find_dead(others: Sequence[queries.Row], me: Registration, unmoved: Collection[str] = ()) -> list[Dead]:
    """The dead among other workers: of this machine, those whose process is gone; else, those whose lease is over.

    Args:
        others: the rows of the workers.
        me: who asks.
        unmoved: whose heartbeat has not changed for as long as a lease by a clock of its own: the database's may have
            been ahead when they last beat.
    """
    found = []
    for worker in others:
        gone = worker["host"] == me.host and is_gone(worker["pid"], worker["process_started"])
        if gone or worker["silent_seconds"] > LEASE_SECONDS or worker["id"] in unmoved:
            found.append(Dead(id=worker["id"], is_gone=gone, beat=None if gone else worker["heartbeat_at"]))
    return found


def bury(engine: sa.Engine, dead: Dead) -> bool:
    """Ends what a dead worker had, in the database alone: its attempts are lost, its claims free.

    Its devices stay leased until its processes are known to be gone (`leases.sweep`). False: it was not dead.
    """
    # a worker that is only silent may beat at this very moment
    return _remove(engine, dead.id, _LOST, beat=dead.beat)


def bury_all(engine: sa.Engine) -> None:
    """The same for all workers, which an upgrade of the database takes for dead: none may come back with older code."""
    with engine.connect() as connection:
        rows = queries.other_workers(connection, None)
    for row in rows:
        _remove(engine, row["id"], _LOST)


def nodes_at_work(engine: sa.Engine, study_id: str) -> set[str]:
    """The nodes whose workers live and work on a study."""
    with engine.connect() as connection:
        return at_work_on(connection, study_id)


def at_work_on(connection: sa.Connection, study_id: str) -> set[str]:
    """The same, in a transaction."""
    rows = queries.other_workers(connection, None)
    return {row["node"] for row in rows if row["study_id"] == study_id and row["silent_seconds"] < LEASE_SECONDS}


def _remove(engine: sa.Engine, worker_id: str, message: str, beat: float | None = None) -> bool:
    with writing(engine) as connection:
        _leave_studies(connection, worker_id)
        queries.hold_worker(connection, worker_id)
        _leave_studies(connection, worker_id)  # what it began meanwhile
        if not queries.delete_worker(connection, worker_id, beat=beat):
            connection.rollback()
            return False
        queries.lose_attempts(connection, worker_id, message)
    return True


def _leave_studies(connection: sa.Connection, worker_id: str) -> None:
    for study_id in queries.studies_of_worker(connection, worker_id):
        queries.change_study(connection, study_id, decides=False)
        claims.leave_all(connection, worker_id, study_id)
