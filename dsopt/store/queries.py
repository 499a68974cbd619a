"""Every query on dsopt's own tables, one named function each; those on claims are in `store/claims.py`.

All take an open connection and commit nothing.

Transitions are `UPDATE … WHERE state = …`; a False result means that somebody else was first. Ages are measured with
the database's clock, so workers' clocks may differ.
"""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from dsopt.store.clock import incarnation, not_before, now, since
from dsopt.store.tables import STUDY_STATES, attempts, claims, measurements, new_id, studies, workers

Row = sa.RowMapping


def _standing(connection: sa.Connection) -> tuple[sa.ColumnElement[Any], ...]:
    """How a study stands now."""
    return studies.c.state, studies.c.version, studies.c.decisions, studies.c.marks, incarnation(connection)


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
        "decisions": 0,
        "marks": "{}",
        "created_at": now(connection),
    }
    return insert_if_absent(connection, studies, values)


def sign_study(connection: sa.Connection, row: Row, *, signature: str, signed_by: str) -> None:
    """Writes the signature of a study, if that is still what its row was."""
    update = sa.update(studies).where(studies.c.id == row["id"], studies.c.spec == row["spec"])
    connection.execute(update.values(signature=signature, signed_by=signed_by))


def find_study(connection: sa.Connection, name: str) -> Row | None:
    return connection.execute(sa.select(studies).where(studies.c.name == name)).mappings().one_or_none()


def all_studies(connection: sa.Connection) -> Sequence[Row]:
    return connection.execute(sa.select(studies).order_by(studies.c.created_at, studies.c.name)).mappings().all()


def study_now(connection: sa.Connection, study_id: str, *, locks: bool = False) -> Row | None:
    """A study's state, version, decisions and marks, and the incarnation; None if it was deleted.

    With `locks` it waits for whoever changes the study, and others wait until the end of this transaction.
    """
    query = sa.select(*_standing(connection)).where(studies.c.id == study_id)
    query = query.with_for_update(of=studies) if locks else query
    return connection.execute(query).mappings().one_or_none()


def study_since(connection: sa.Connection, study_id: str, version: int) -> Sequence[Row]:
    """The same, with how many claims there are, beside each claim that has changed since a version.

    One row without a claim (`id` is None) if none has; no row if the study was deleted. All of it is of one moment.
    """
    count = sa.select(sa.func.count()).where(claims.c.study_id == study_id).scalar_subquery()
    changed = sa.and_(claims.c.study_id == studies.c.id, claims.c.version > version)
    known: list[sa.ColumnElement[Any]] = [c for c in claims.c if c.name not in ("study_id", "version")]
    known.append(claims.c.version.label("changed_in"))
    query = (
        sa.select(*_standing(connection), count.label("claims"), *known)
        .outerjoin(claims, changed)
        .where(studies.c.id == study_id)
        .order_by(claims.c.stage, claims.c.trial)
    )
    return connection.execute(query).mappings().all()


def change_study(
    connection: sa.Connection,
    study_id: str,
    *,
    version: int | None = None,
    decisions: int | None = None,
    allowed: Sequence[str] = STUDY_STATES,
    decides: bool = True,
    **values: Any,  # noqa: ANN401 - columns of the table
) -> bool:
    """Counts a change of a study, which nobody else can change until this transaction ends.

    With `decides`, it counts as a decision, too. False, and nothing changed: the study is gone, is not in an `allowed`
    state, or has another version or other decisions.
    """
    if values.get("state") == "finished":
        values["finished_at"] = not_before(connection, studies.c.created_at)
    update = sa.update(studies).where(studies.c.id == study_id, studies.c.state.in_(allowed))
    if version is not None:
        update = update.where(studies.c.version == version)
    if decisions is not None:
        update = update.where(studies.c.decisions == decisions)
    counted = {"version": studies.c.version + 1, "decisions": studies.c.decisions + int(decides)}
    return connection.execute(update.values(**counted, **values)).rowcount == 1


def mark_part(connection: sa.Connection, study_id: str, part: str, attributes: Mapping[str, Any]) -> None:
    """Writes attributes of a part of a study that only this transaction can change."""
    text = connection.execute(sa.select(studies.c.marks).where(studies.c.id == study_id)).scalar_one()
    marks = marks_in(text)
    marks[part] = {**marks.get(part, {}), **attributes}
    connection.execute(sa.update(studies).where(studies.c.id == study_id).values(marks=json.dumps(marks)))


def marks_in(text: str) -> dict[str, Mapping[str, Any]]:
    """The marks of each part that has some; what dsopt cannot have written is none."""
    try:
        marks = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {part: of for part, of in marks.items() if isinstance(of, dict)} if isinstance(marks, dict) else {}


def delete_study(connection: sa.Connection, study_id: str) -> None:
    """Removes a study with its claims, attempts and measurements."""
    connection.execute(sa.delete(studies).where(studies.c.id == study_id))


# --- workers


def insert_worker(connection: sa.Connection, values: Mapping[str, Any]) -> None:
    """Adds a worker that is alive now."""
    at = now(connection)
    connection.execute(sa.insert(workers).values(**values, registered_at=at, heartbeat_at=at))


def beat(connection: sa.Connection, worker_id: str, study_id: str | None, rates: str | None) -> bool | None:
    """Records that a worker is alive, what it works on, and what its node does.

    Returns whether it is to drain; None: it was buried.
    """
    values = {"heartbeat_at": now(connection), "study_id": study_id, "rates": rates}
    update = sa.update(workers).where(workers.c.id == worker_id).values(values).returning(workers.c.draining)
    return connection.execute(update).scalar_one_or_none()


def drain(connection: sa.Connection, worker_ids: Sequence[str]) -> None:
    """Asks workers to finish their runs and to leave."""
    connection.execute(sa.update(workers).where(workers.c.id.in_(worker_ids)).values(draining=True))


def other_workers(connection: sa.Connection, worker_id: str | None) -> Sequence[Row]:
    """The other workers by node (None: all), each with the age of its last heartbeat in seconds."""
    query = sa.select(workers, since(connection, workers.c.heartbeat_at).label("silent_seconds"))
    if worker_id is not None:
        query = query.where(workers.c.id != worker_id)
    return connection.execute(query.order_by(workers.c.node, workers.c.pid)).mappings().all()


def keep_worker(connection: sa.Connection, worker_id: str) -> bool | None:
    """Lets nobody remove a worker until this transaction ends. Returns whether it is to drain; None: it is gone."""
    query = sa.select(workers.c.draining).where(workers.c.id == worker_id)
    return connection.execute(query.with_for_update(read=True, key_share=True)).scalar_one_or_none()


def hold_worker(connection: sa.Connection, worker_id: str) -> None:
    """Lets nobody write in a worker's name until this transaction ends."""
    connection.execute(sa.select(workers.c.id).where(workers.c.id == worker_id).with_for_update()).first()


def studies_of_worker(connection: sa.Connection, worker_id: str) -> list[str]:
    """The studies in which a worker has claims or running attempts, in order: whoever locks several does so in it."""
    claimed = sa.select(claims.c.study_id).where(claims.c.worker_id == worker_id)
    running = sa.select(attempts.c.study_id).where(attempts.c.worker_id == worker_id, attempts.c.state == "running")
    return sorted(connection.execute(claimed.union(running)).scalars())


def delete_worker(connection: sa.Connection, worker_id: str, *, beat: float | None = None) -> bool:
    """Removes a worker, if this is its last heartbeat. False: there was a later one, or somebody else removed it."""
    where = [workers.c.id == worker_id]
    if beat is not None:
        where.append(workers.c.heartbeat_at == beat)
    return connection.execute(sa.delete(workers).where(*where)).rowcount == 1


# --- attempts


def insert_attempt(connection: sa.Connection, values: Mapping[str, Any]) -> None:
    """Begins an attempt. It is later than all others of its trial, whatever the clock says."""
    earlier = of_trial(attempts, values["study_id"], values["stage"], values["trial"])
    last = sa.select(sa.func.coalesce(sa.func.max(attempts.c.started_at) + 0.001, 0.0)).where(earlier)
    started_at = not_before(connection, last.scalar_subquery())
    row = {**values, "state": "running", "started_at": started_at}
    connection.execute(sa.insert(attempts).values(row))


def finish_attempt(
    connection: sa.Connection, attempt_id: str, *, worker_id: str, state: str, reason: str | None, message: str | None
) -> float | None:
    """Ends a worker's running attempt. Returns how long it ran, in seconds; None: it is not its, or was ended."""
    ended_at = not_before(connection, attempts.c.started_at)
    update = (
        sa.update(attempts)
        .where(attempts.c.id == attempt_id, attempts.c.worker_id == worker_id, attempts.c.state == "running")
        .values(state=state, reason=reason, message=message, finished_at=ended_at)
        .returning(sa.type_coerce(attempts.c.finished_at - attempts.c.started_at, sa.Float).label("seconds"))
    )
    return connection.execute(update).scalar_one_or_none()


def has_attempt(connection: sa.Connection, attempt_id: str, *, worker_id: str, state: str) -> bool:
    """Whether a worker has an attempt in that state."""
    where = (attempts.c.id == attempt_id, attempts.c.worker_id == worker_id, attempts.c.state == state)
    return connection.execute(sa.select(attempts.c.id).where(*where)).first() is not None


def lose_attempts(connection: sa.Connection, worker_id: str, message: str) -> None:
    """Ends all running attempts of a worker as lost."""
    ended_at = not_before(connection, attempts.c.started_at)
    connection.execute(
        sa.update(attempts)
        .where(attempts.c.worker_id == worker_id, attempts.c.state == "running")
        .values(state="failed", reason="lost", message=message, finished_at=ended_at)
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
        .where(of_trial(attempts, study_id, stage, trial))
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


def of_trial(table: sa.Table, study_id: str, stage: str, trial: int) -> sa.ColumnElement[bool]:
    """Whether a row is about a trial."""
    return sa.and_(table.c.study_id == study_id, table.c.stage == stage, table.c.trial == trial)


def insert_into(dialect: str) -> Callable[[sa.Table], Any]:
    """The INSERT of the database's own dialect, which can pass over rows that are there."""
    insert: Callable[[sa.Table], Any] = importlib.import_module(f"sqlalchemy.dialects.{dialect}").insert
    return insert


def insert_if_absent(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> bool:
    """Adds a row. False: there is one like it."""
    statement = (
        insert_into(connection.dialect.name)(table).values(values).on_conflict_do_nothing().returning(table.c.id)
    )
    return connection.execute(statement).first() is not None
