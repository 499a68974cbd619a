"""Transactions that change a study: one at a time, and only if what the change was decided on still holds."""

import contextlib
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from dsopt.store import queries
from dsopt.store.tables import STUDY_STATES

UNFINISHED = ("created", "baseline", "searching", "confirming")


class Fenced(Exception):  # noqa: N818 - not an error: a write that came too late
    """A write was refused: what it is about has changed, or is gone. Nothing was written."""


class StudyChanged(Fenced):
    """Somebody else has changed the study since it was read."""


class StudyGone(Fenced):
    """The study was deleted."""


class WorkerGone(Fenced):
    """Other workers took this one for dead."""


class WorkerDrains(Fenced):
    """Somebody has asked this worker to begin nothing more."""


class AttemptOver(Fenced):
    """Somebody else ended the attempt."""


class DevicesTaken(Exception):  # noqa: N818 - not an error: others were first
    """Not enough devices are free now. Nothing was written."""


class MustBeAlone(DevicesTaken):
    """A run begins only when none is beside it. Nothing was written."""


class LeftToOthers(Exception):  # noqa: N818 - not an error
    """Workers of other nodes should begin this. Nothing was written."""


@contextlib.contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that writes. In SQLite, it waits for others that write at its beginning, and never later."""
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection


@contextlib.contextmanager
def changing(
    engine: sa.Engine,
    study_id: str,
    *,
    worker_id: str | None = None,
    version: int | None = None,
    decisions: int | None = None,
    decides: bool = True,
    is_open: bool = False,
    **values: Any,  # noqa: ANN401 - columns of the table of studies
) -> Iterator[sa.Connection]:
    """A transaction that changes an unfinished study, and counts the change. Others that change it wait for its end.

    Args:
        engine: of the database.
        study_id: the study.
        worker_id: the worker that changes it; None: a person does, and the study may be finished.
        version: the version that the change was decided on; None: it holds in any.
        decisions: the same, of the study's decisions: what ended since then does not matter.
        decides: whether it is itself a decision.
        is_open: whether it begins something: not in a study that is finished or stopped, nor by a worker that drains.
        values: new values of the study's own columns.

    Raises:
        Fenced: the study or the worker is gone, or the study has another version or other decisions, or is stopped;
            or the worker drains.
    """
    with writing(engine) as connection:
        is_free = worker_id is None or (version is None and decisions is None and not is_open)
        allowed = STUDY_STATES if is_free else UNFINISHED
        if not queries.change_study(
            connection,
            study_id,
            version=version,
            decisions=decisions,
            allowed=allowed,
            decides=decides,
            **values,
        ):
            raise StudyGone if queries.study_now(connection, study_id) is None else StudyChanged
        # asked last: whoever buries a worker changes its studies first, and this transaction may have waited for that
        is_draining = worker_id is not None and queries.keep_worker(connection, worker_id)
        if is_draining is None:
            raise WorkerGone
        if is_draining and is_open:
            raise WorkerDrains
        yield connection
