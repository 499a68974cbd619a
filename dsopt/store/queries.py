"""Every query on dsopt's own tables, one named function each. All take an open connection and commit nothing.

Transitions are `UPDATE … WHERE state = …`; a False result means that somebody else was first. Ages are measured with
the database's clock, so workers' clocks may differ.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dsopt.store.tables import attempts, claims, leases, measurements, studies, workers

Row = sa.RowMapping


def clock(connection: sa.Connection) -> float:
    """The database's clock, seconds since the epoch."""
    if connection.dialect.name == "sqlite":
        expression = "SELECT (julianday('now') - 2440587.5) * 86400.0"
    else:
        expression = "SELECT extract(epoch FROM clock_timestamp())"
    return float(connection.execute(sa.text(expression)).scalar_one())


# --- studies


def insert_study(connection: sa.Connection, *, name: str, spec: str, digest: str) -> bool:
    """Adds a study in state `created`. False: the name is taken."""
    now = clock(connection)
    return _insert_if_absent(
        connection, studies, {"name": name, "spec": spec, "digest": digest, "state": "created", "created_at": now}
    )


def find_study(connection: sa.Connection, name: str) -> Row | None:
    return connection.execute(sa.select(studies).where(studies.c.name == name)).mappings().one_or_none()


def all_studies(connection: sa.Connection) -> Sequence[Row]:
    return connection.execute(sa.select(studies).order_by(studies.c.id)).mappings().all()


def move_study(
    connection: sa.Connection, study_id: int, *, allowed: Sequence[str], state: str, note: str | None = None
) -> bool:
    """Moves a study to `state` if its state is one of the `allowed` ones. False: it is not."""
    finished_at = clock(connection) if state == "finished" else None
    result = connection.execute(
        sa.update(studies)
        .where(studies.c.id == study_id, studies.c.state.in_(allowed))
        .values(state=state, note=note, finished_at=finished_at)
    )
    return result.rowcount == 1


def study_state(connection: sa.Connection, study_id: int) -> str | None:
    return connection.execute(sa.select(studies.c.state).where(studies.c.id == study_id)).scalar_one_or_none()


def delete_study(connection: sa.Connection, study_id: int) -> None:
    """Removes a study with its claims, attempts, leases and measurements."""
    connection.execute(sa.delete(studies).where(studies.c.id == study_id))


# --- workers


def insert_worker(connection: sa.Connection, *, node: str, host: str, pid: int, process_started: float) -> int:
    values = {
        "node": node,
        "host": host,
        "pid": pid,
        "process_started": process_started,
        "heartbeat_at": clock(connection),
    }
    return int(connection.execute(sa.insert(workers).values(values).returning(workers.c.id)).scalar_one())


def beat(connection: sa.Connection, worker_id: int) -> bool:
    """Records that a worker is alive. False: others took it for dead."""
    update = sa.update(workers).where(workers.c.id == worker_id).values(heartbeat_at=clock(connection))
    return connection.execute(update).rowcount == 1


def other_workers(connection: sa.Connection, worker_id: int | None) -> Sequence[Row]:
    """The other workers, each with the age of its last heartbeat in seconds."""
    age = (clock(connection) - workers.c.heartbeat_at).label("silent_seconds")
    query = sa.select(workers, age)
    if worker_id is not None:
        query = query.where(workers.c.id != worker_id)
    return connection.execute(query).mappings().all()


def delete_worker(connection: sa.Connection, worker_id: int) -> None:
    connection.execute(sa.delete(workers).where(workers.c.id == worker_id))


# --- claims


def insert_claim(
    connection: sa.Connection,
    *,
    study_id: int,
    stage: str,
    candidate: str,
    round_: int,
    trial: int,
    worker_id: int | None,
) -> bool:
    """Gives a candidate to a worker, or to none when its trial is over. False: somebody else has it."""
    values = {
        "study_id": study_id,
        "stage": stage,
        "candidate": candidate,
        "round": round_,
        "trial": trial,
        "worker_id": worker_id,
    }
    return _insert_if_absent(connection, claims, values)


def claims_of(connection: sa.Connection, study_id: int) -> Sequence[Row]:
    return connection.execute(sa.select(claims).where(claims.c.study_id == study_id)).mappings().all()


def adopt_claim(connection: sa.Connection, claim_id: int, worker_id: int) -> bool:
    """Gives a claim whose worker is gone to another. False: it has a worker."""
    update = sa.update(claims).where(claims.c.id == claim_id, claims.c.worker_id.is_(None)).values(worker_id=worker_id)
    return connection.execute(update).rowcount == 1


def release_claim(connection: sa.Connection, *, study_id: int, stage: str, trial: int) -> None:
    """Gives a claim back: its candidate may be claimed again."""
    connection.execute(
        sa.delete(claims).where(claims.c.study_id == study_id, claims.c.stage == stage, claims.c.trial == trial)
    )


# --- attempts


def insert_attempt(
    connection: sa.Connection,
    *,
    study_id: int,
    stage: str,
    trial: int,
    candidate: str,
    round_: int,
    worker_id: int,
    run_dir: str,
) -> int:
    values = {
        "study_id": study_id,
        "stage": stage,
        "trial": trial,
        "candidate": candidate,
        "round": round_,
        "worker_id": worker_id,
        "run_dir": run_dir,
        "state": "running",
        "started_at": clock(connection),
    }
    return int(connection.execute(sa.insert(attempts).values(values).returning(attempts.c.id)).scalar_one())


def finish_attempt(
    connection: sa.Connection, attempt_id: int, *, state: str, reason: str | None, message: str | None
) -> bool:
    """Ends a running attempt and its leases. False: somebody else ended it."""
    result = connection.execute(
        sa.update(attempts)
        .where(attempts.c.id == attempt_id, attempts.c.state == "running")
        .values(state=state, reason=reason, message=message, finished_at=clock(connection))
    )
    connection.execute(sa.delete(leases).where(leases.c.attempt_id == attempt_id))
    return result.rowcount == 1


def attempts_of(connection: sa.Connection, study_id: int) -> Sequence[Row]:
    """Every attempt of a study, oldest first, each with its figures if it was measured, or slow."""
    figures = ("metric", "step_seconds", "half_width_seconds", "samples_per_second", "peak_memory_bytes")
    query = (
        sa.select(attempts, *(measurements.c[name] for name in figures))
        .outerjoin(measurements, measurements.c.attempt_id == attempts.c.id)
        .where(attempts.c.study_id == study_id)
        .order_by(attempts.c.id)
    )
    return connection.execute(query).mappings().all()


def attempts_for(connection: sa.Connection, study_id: int, stage: str, trial: int) -> Sequence[Row]:
    """The attempts of one trial, oldest first, each with its measurement if it has one."""
    query = (
        sa.select(attempts, measurements.c.details)
        .outerjoin(measurements, measurements.c.attempt_id == attempts.c.id)
        .where(attempts.c.study_id == study_id, attempts.c.stage == stage, attempts.c.trial == trial)
        .order_by(attempts.c.id)
    )
    return connection.execute(query).mappings().all()


def orphaned_attempts(connection: sa.Connection) -> Sequence[Row]:
    """Running attempts whose worker is gone."""
    query = sa.select(attempts).where(attempts.c.state == "running", attempts.c.worker_id.is_(None))
    return connection.execute(query).mappings().all()


def running_attempts_of_worker(connection: sa.Connection, worker_id: int) -> Sequence[Row]:
    query = sa.select(attempts).where(attempts.c.state == "running", attempts.c.worker_id == worker_id)
    return connection.execute(query).mappings().all()


def copy_attempt(
    connection: sa.Connection, attempt_id: int, *, study_id: int, stage: str, trial: int, candidate: str
) -> int:
    """Copies a finished attempt to another study's trial, without its measurement.

    Returns:
        The copy's id.
    """
    kept = ("round", "state", "reason", "message", "run_dir", "started_at", "finished_at")
    values = connection.execute(sa.select(*(attempts.c[key] for key in kept)).where(attempts.c.id == attempt_id))
    copied = {**values.mappings().one(), "study_id": study_id, "stage": stage, "trial": trial, "candidate": candidate}
    return int(connection.execute(sa.insert(attempts).values(copied).returning(attempts.c.id)).scalar_one())


def insert_measurement(connection: sa.Connection, attempt_id: int, values: dict[str, Any]) -> None:
    connection.execute(sa.insert(measurements).values(attempt_id=attempt_id, **values))


# --- leases


def lease(connection: sa.Connection, *, node: str, device: str, attempt_id: int) -> bool:
    """Gives a device (or port) of a node to an attempt. False: another attempt has it."""
    return _insert_if_absent(connection, leases, {"node": node, "device": device, "attempt_id": attempt_id})


def leased_devices(connection: sa.Connection, node: str) -> set[str]:
    return set(connection.execute(sa.select(leases.c.device).where(leases.c.node == node)).scalars())


def _insert_if_absent(connection: sa.Connection, table: sa.Table, values: dict[str, Any]) -> bool:
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(table).values(values).on_conflict_do_nothing().returning(table.c.id)
    return connection.execute(statement).first() is not None
