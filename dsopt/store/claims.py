"""Queries on the table of claims. Like `store/queries.py`, they take an open connection and commit nothing.

Whoever changes a claim has changed its study before in the same transaction, and so counted the study's version, which
the claim gets.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from dsopt.store.queries import Row, insert_if_absent, of_trial
from dsopt.store.tables import claims, studies


def insert(connection: sa.Connection, values: Mapping[str, Any]) -> bool:
    """Gives a candidate to a worker, or to none when its trial is over. False: somebody else has it."""
    return insert_if_absent(connection, claims, {**values, "version": _version_of(values["study_id"])})


def all_of(connection: sa.Connection, study_id: str, names: Collection[str] | None = None) -> Sequence[Row]:
    """Every claim of a study, or those of the candidates that are named, in the order of parts and trials."""
    query = sa.select(claims, claims.c.version.label("changed_in")).where(claims.c.study_id == study_id)
    if names is not None:
        query = query.where(claims.c.candidate.in_(names))
    query = query.order_by(claims.c.stage, claims.c.trial)
    return connection.execute(query).mappings().all()


def free_of(connection: sa.Connection, study_id: str) -> Sequence[Row]:
    """Claims whose worker is gone and whose trial is not over, oldest first."""
    is_free = (claims.c.study_id == study_id, claims.c.worker_id.is_(None), claims.c.ended.is_(None))
    return connection.execute(sa.select(claims).where(*is_free).order_by(claims.c.id)).mappings().all()


def open_of(connection: sa.Connection, worker_id: str, study_id: str) -> Sequence[Row]:
    """A worker's claims in a study whose trials are not over."""
    query = sa.select(claims).where(_is_open(worker_id, study_id)).order_by(claims.c.id)
    return connection.execute(query).mappings().all()


def take(connection: sa.Connection, study_id: str, claim_id: int, worker_id: str) -> bool:
    """Gives a claim whose worker is gone to another. False: it has a worker, or is gone."""
    update = sa.update(claims).where(claims.c.id == claim_id, claims.c.worker_id.is_(None), claims.c.ended.is_(None))
    return connection.execute(update.values(worker_id=worker_id, version=_version_of(study_id))).rowcount == 1


def has(connection: sa.Connection, *, study_id: str, stage: str, trial: int, worker_id: str | None = None) -> bool:
    """Whether a trial is claimed, by this worker if one is given."""
    query = sa.select(claims.c.id).where(of_trial(claims, study_id, stage, trial))
    if worker_id is not None:
        query = query.where(claims.c.worker_id == worker_id)
    return connection.execute(query).first() is not None


def end(connection: sa.Connection, *, study_id: str, stage: str, trial: int, ended: str) -> bool:
    """Records what came of a claimed trial. False: that is known, or the claim is gone."""
    update = sa.update(claims).where(of_trial(claims, study_id, stage, trial), claims.c.ended.is_(None))
    return connection.execute(update.values(ended=ended, version=_version_of(study_id))).rowcount == 1


def release(
    connection: sa.Connection,
    *,
    study_id: str,
    stage: str,
    trial: int,
    worker_id: str | None = None,
    is_over: bool = False,
) -> None:
    """Gives a claim back: its trial does not count any more, and its candidate may be claimed again.

    Given a worker, only if it is its own; with `is_over`, only if its outcome is known.
    """
    delete = sa.delete(claims).where(of_trial(claims, study_id, stage, trial))
    if worker_id is not None:
        delete = delete.where(claims.c.worker_id == worker_id)
    if is_over:
        delete = delete.where(claims.c.ended.is_not(None))
    connection.execute(delete)


def leave(connection: sa.Connection, *, study_id: str, stage: str, trial: int) -> None:
    """Leaves a trial to whatever worker takes it next."""
    update = sa.update(claims).where(of_trial(claims, study_id, stage, trial))
    connection.execute(update.values(worker_id=None, version=_version_of(study_id)))


def leave_all(connection: sa.Connection, worker_id: str, study_id: str) -> None:
    """Leaves all of a worker's trials in a study that are not over to others."""
    update = sa.update(claims).where(_is_open(worker_id, study_id))
    connection.execute(update.values(worker_id=None, version=_version_of(study_id)))


def _is_open(worker_id: str, study_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(claims.c.study_id == study_id, claims.c.worker_id == worker_id, claims.c.ended.is_(None))


def _version_of(study_id: str) -> sa.ScalarSelect[int]:
    return sa.select(studies.c.version).where(studies.c.id == study_id).scalar_subquery()
