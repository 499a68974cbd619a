"""Every query on dsopt's own tables, one named function each. All take an open connection and commit nothing.

Transitions are `UPDATE … WHERE state = …`; a False result means that somebody else was first. Ages are measured with
the database's clock, so workers' clocks may differ.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dsopt.store.tables import STUDY_STATES, attempts, claims, leases, measurements, new_id, studies, workers

Row = sa.RowMapping


def now(connection: sa.Connection) -> sa.ColumnElement[float]:
    """The database's clock as an expression: seconds since the epoch."""
    if connection.dialect.name == "sqlite":
        return sa.literal_column("(julianday('now') - 2440587.5) * 86400.0", sa.Float)
    return sa.literal_column("extract(epoch FROM clock_timestamp())", sa.Float)


# --- studies


def insert_study(connection: sa.Connection, *, name: str, spec: str, digest: str) -> bool:
    """Adds a study in state `created`. False: the name is taken."""
    values = {
        "id": new_id(),
        "name": name,
        "spec": spec,
        "digest": digest,
        "state": "created",
        "version": 0,
        "created_at": now(connection),
    }
    return _insert_if_absent(connection, studies, values)


def sign_study(connection: sa.Connection, *, name: str, spec: str, signature: str, signed_by: str) -> bool:
    """Writes the signature of a study. False: there is none of that name with that spec."""
    update = sa.update(studies).where(studies.c.name == name, studies.c.spec == spec)
    return connection.execute(update.values(signature=signature, signed_by=signed_by)).rowcount == 1


def find_study(connection: sa.Connection, name: str) -> Row | None:
    return connection.execute(sa.select(studies).where(studies.c.name == name)).mappings().one_or_none()


def all_studies(connection: sa.Connection) -> Sequence[Row]:
    return connection.execute(sa.select(studies).order_by(studies.c.created_at, studies.c.name)).mappings().all()


def study_now(connection: sa.Connection, study_id: str) -> Row | None:
    """A study's state and version; None if it was deleted."""
    query = sa.select(studies.c.state, studies.c.version).where(studies.c.id == study_id)
    return connection.execute(query).mappings().one_or_none()


def change_study(
    connection: sa.Connection,
    study_id: str,
    *,
    version: int | None = None,
    worker_id: str | None = None,
    allowed: Sequence[str] = STUDY_STATES,
    **values: Any,  # noqa: ANN401 - columns of the table
) -> bool:
    """Counts a change of a study, which nobody else can change until this transaction ends.

    False, and nothing changed: it is gone, is not in an `allowed` state, has another version, or the worker is gone.
    """
    if values.get("state") == "finished":
        values["finished_at"] = now(connection)
    update = sa.update(studies).where(studies.c.id == study_id, studies.c.state.in_(allowed))
    if version is not None:
        update = update.where(studies.c.version == version)
    if worker_id is not None:
        update = update.where(sa.exists().where(workers.c.id == worker_id))
    return connection.execute(update.values(version=studies.c.version + 1, **values)).rowcount == 1


def delete_study(connection: sa.Connection, study_id: str) -> None:
    """Removes a study with its claims, attempts and measurements."""
    connection.execute(sa.delete(studies).where(studies.c.id == study_id))


# --- workers


def insert_worker(connection: sa.Connection, values: Mapping[str, Any]) -> None:
    """Adds a worker that is alive now."""
    at = now(connection)
    connection.execute(sa.insert(workers).values(**values, registered_at=at, heartbeat_at=at))


def beat(connection: sa.Connection, worker_id: str, study_id: str | None) -> bool:
    """Records that a worker is alive, and what it works on. False: others took it for dead."""
    values = {"heartbeat_at": now(connection), "study_id": study_id}
    return connection.execute(sa.update(workers).where(workers.c.id == worker_id).values(values)).rowcount == 1


def other_workers(connection: sa.Connection, worker_id: str | None) -> Sequence[Row]:
    """The other workers by node (None: all), each with the age of its last heartbeat in seconds."""
    query = sa.select(workers, (now(connection) - workers.c.heartbeat_at).label("silent_seconds"))
    if worker_id is not None:
        query = query.where(workers.c.id != worker_id)
    return connection.execute(query.order_by(workers.c.node, workers.c.pid)).mappings().all()


def is_registered(connection: sa.Connection, worker_id: str) -> bool:
    return connection.execute(sa.select(workers.c.id).where(workers.c.id == worker_id)).first() is not None


def studies_of_worker(connection: sa.Connection, worker_id: str) -> list[str]:
    """The studies in which a worker has claims or running attempts, in order: whoever locks several does so in it."""
    claimed = sa.select(claims.c.study_id).where(claims.c.worker_id == worker_id)
    running = sa.select(attempts.c.study_id).where(attempts.c.worker_id == worker_id, attempts.c.state == "running")
    return sorted(connection.execute(claimed.union(running)).scalars())


def delete_worker(connection: sa.Connection, worker_id: str, *, silent_seconds: float | None = None) -> bool:
    """Removes a worker, if it has been silent for so long. False: it has not, or somebody else removed it."""
    where = [workers.c.id == worker_id]
    if silent_seconds is not None:
        where.append(now(connection) - workers.c.heartbeat_at > silent_seconds)
    return connection.execute(sa.delete(workers).where(*where)).rowcount == 1


# --- claims


def insert_claim(connection: sa.Connection, values: Mapping[str, Any]) -> bool:
    """Gives a candidate to a worker, or to none when its trial is over. False: somebody else has it."""
    return _insert_if_absent(connection, claims, values)


def claims_of(connection: sa.Connection, study_id: str) -> Sequence[Row]:
    return connection.execute(sa.select(claims).where(claims.c.study_id == study_id)).mappings().all()


def free_claims(connection: sa.Connection, study_id: str) -> Sequence[Row]:
    """Claims whose worker is gone, oldest first; those of trials that are over are among them."""
    query = sa.select(claims).where(claims.c.study_id == study_id, claims.c.worker_id.is_(None)).order_by(claims.c.id)
    return connection.execute(query).mappings().all()


def take_claim(connection: sa.Connection, claim_id: int, worker_id: str) -> bool:
    """Gives a claim whose worker is gone to another. False: it has a worker, or is gone."""
    update = sa.update(claims).where(claims.c.id == claim_id, claims.c.worker_id.is_(None)).values(worker_id=worker_id)
    return connection.execute(update).rowcount == 1


def has_claim(
    connection: sa.Connection, *, study_id: str, stage: str, trial: int, worker_id: str | None = None
) -> bool:
    """Whether a trial is claimed, by this worker if one is given."""
    query = sa.select(claims.c.id).where(_of_trial(claims, study_id, stage, trial))
    if worker_id is not None:
        query = query.where(claims.c.worker_id == worker_id)
    return connection.execute(query).first() is not None


def release_claim(connection: sa.Connection, *, study_id: str, stage: str, trial: int) -> None:
    """Gives a claim back: its trial does not count any more, and its candidate may be claimed again."""
    connection.execute(sa.delete(claims).where(_of_trial(claims, study_id, stage, trial)))


def leave_claim(connection: sa.Connection, *, study_id: str, stage: str, trial: int) -> None:
    """Leaves a trial to whatever worker takes it next."""
    connection.execute(sa.update(claims).where(_of_trial(claims, study_id, stage, trial)).values(worker_id=None))


# --- attempts


def insert_attempt(connection: sa.Connection, values: Mapping[str, Any]) -> str:
    """Begins an attempt, and returns its id."""
    attempt_id = new_id()
    row = {**values, "id": attempt_id, "state": "running", "started_at": now(connection)}
    connection.execute(sa.insert(attempts).values(row))
    return attempt_id


def finish_attempt(
    connection: sa.Connection, attempt_id: str, *, worker_id: str, state: str, reason: str | None, message: str | None
) -> float | None:
    """Ends a worker's running attempt. Returns how long it ran, in seconds; None: it is not its, or was ended."""
    update = (
        sa.update(attempts)
        .where(attempts.c.id == attempt_id, attempts.c.worker_id == worker_id, attempts.c.state == "running")
        .values(state=state, reason=reason, message=message, finished_at=now(connection))
        .returning((attempts.c.finished_at - attempts.c.started_at).label("seconds"))
    )
    return connection.execute(update).scalar_one_or_none()


def has_attempt(connection: sa.Connection, attempt_id: str, *, worker_id: str, state: str) -> bool:
    """Whether a worker has an attempt in that state."""
    where = (attempts.c.id == attempt_id, attempts.c.worker_id == worker_id, attempts.c.state == state)
    return connection.execute(sa.select(attempts.c.id).where(*where)).first() is not None


def lose_attempts(connection: sa.Connection, worker_id: str, message: str) -> None:
    """Ends all running attempts of a worker as lost."""
    connection.execute(
        sa.update(attempts)
        .where(attempts.c.worker_id == worker_id, attempts.c.state == "running")
        .values(state="failed", reason="lost", message=message, finished_at=now(connection))
    )


def running_attempts(connection: sa.Connection, worker_id: str) -> Sequence[Row]:
    """The running attempts of a worker."""
    query = sa.select(attempts).where(attempts.c.state == "running", attempts.c.worker_id == worker_id)
    return connection.execute(query).mappings().all()


def attempts_of(connection: sa.Connection, study_id: str) -> Sequence[Row]:
    """Every attempt of a study, oldest first, each with its figures if it was measured, or slow."""
    figures = ("metric", "step_seconds", "half_width_seconds", "samples_per_second", "peak_memory_bytes")
    query = (
        sa.select(attempts, *(measurements.c[name] for name in figures))
        .outerjoin(measurements, measurements.c.attempt_id == attempts.c.id)
        .where(attempts.c.study_id == study_id)
        .order_by(attempts.c.started_at, attempts.c.id)
    )
    return connection.execute(query).mappings().all()


def attempts_for(connection: sa.Connection, study_id: str, stage: str, trial: int) -> Sequence[Row]:
    """The attempts of one trial, oldest first, each with its measurement if it has one."""
    query = (
        sa.select(attempts, measurements.c.details)
        .outerjoin(measurements, measurements.c.attempt_id == attempts.c.id)
        .where(_of_trial(attempts, study_id, stage, trial))
        .order_by(attempts.c.started_at, attempts.c.id)
    )
    return connection.execute(query).mappings().all()


def copy_attempt(connection: sa.Connection, attempt_id: str, values: Mapping[str, Any]) -> str:
    """Copies a finished attempt to another study's trial, without its measurement, and returns the copy's id."""
    kept = ("round", "state", "reason", "message", "run_dir", "node", "started_at", "finished_at")
    found = connection.execute(sa.select(*(attempts.c[key] for key in kept)).where(attempts.c.id == attempt_id))
    copied = {**found.mappings().one(), **values, "id": new_id()}
    connection.execute(sa.insert(attempts).values(copied))
    return str(copied["id"])


def insert_measurement(connection: sa.Connection, attempt_id: str, values: Mapping[str, Any]) -> None:
    connection.execute(sa.insert(measurements).values(attempt_id=attempt_id, **values))


# --- leases


def lease(connection: sa.Connection, names: Sequence[str], values: Mapping[str, Any]) -> set[str]:
    """Gives devices (or ports) of a node to an attempt. Returns those that no other attempt has."""
    insert = _insert(connection)(leases).values([{**values, "device": name} for name in names])
    return set(connection.execute(insert.on_conflict_do_nothing().returning(leases.c.device)).scalars())


def leases_on(connection: sa.Connection, node: str) -> Sequence[Row]:
    """The leases of a node, each with the state of its attempt (None: the attempt is gone)."""
    query = (
        sa.select(leases, attempts.c.state)
        .outerjoin(attempts, attempts.c.id == leases.c.attempt_id)
        .where(leases.c.node == node)
    )
    return connection.execute(query).mappings().all()


def end_leases(connection: sa.Connection, attempt_id: str) -> None:
    connection.execute(sa.delete(leases).where(leases.c.attempt_id == attempt_id))


def _of_trial(table: sa.Table, study_id: str, stage: str, trial: int) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.study_id == study_id, table.c.stage == stage, table.c.trial == trial)


def _insert(connection: sa.Connection) -> Callable[[sa.Table], Any]:
    """The INSERT of the database's own dialect, which can pass over rows that are there."""
    return postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert


def _insert_if_absent(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> bool:
    statement = _insert(connection)(table).values(values).on_conflict_do_nothing().returning(table.c.id)
    return connection.execute(statement).first() is not None
