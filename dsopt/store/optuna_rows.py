"""Writes trials into Optuna's tables, within a transaction of dsopt's.

Optuna's own functions commit each attribute by itself. A trial that is written with its claim, and an outcome that is
written with its attempt, are there as a whole or not at all, and need three transactions instead of fifty. The tables
are those of Optuna's own models; a test compares what stands in them with what Optuna's functions write.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from optuna.distributions import distribution_to_json
from optuna.storages._rdb import models
from optuna.study._constrained_optimization import _CONSTRAINTS_KEY
from optuna.trial import FrozenTrial, TrialState

from dsopt.errors import DsoptError
from dsopt.store.optuna_notes import note_attributes
from dsopt.store.queries import insert_into
from dsopt.store.trouble import database_error

Attributes = Mapping[str, Any]
_STUDIES: Final = models.StudyModel.__table__
_STUDY_ATTRIBUTES: Final = models.StudyUserAttributeModel.__table__
_STUDY_SYSTEM_ATTRIBUTES: Final = models.StudySystemAttributeModel.__table__
_TRIALS: Final = models.TrialModel.__table__
_ATTRIBUTES: Final = models.TrialUserAttributeModel.__table__
_SYSTEM_ATTRIBUTES: Final = models.TrialSystemAttributeModel.__table__
_PARAMS: Final = models.TrialParamModel.__table__
_VALUES: Final = models.TrialValueModel.__table__
_INTERMEDIATE: Final = models.TrialIntermediateValueModel.__table__
OPEN: Final = (TrialState.WAITING, TrialState.RUNNING)
_NOTE_MILLISECONDS: Final = 100  # that a note may wait for others
FITS: Final = f"{_CONSTRAINTS_KEY}:fits"  # the constraint that a candidate violates which does not fit


class NoNote(Exception):  # noqa: N818 - not an error: a note is for people alone
    """A note was not written."""


class Ended(NamedTuple):
    """The ids of a trial that was ended, and of its study."""

    trial_id: int
    study_id: int


def part_deleted(name: str) -> DsoptError:
    """Somebody has deleted Optuna's study of that name with Optuna, or in optuna-dashboard."""
    return DsoptError(
        f"study '{name.rpartition('/')[0]}': Optuna's study '{name}' was deleted, with Optuna or in optuna-dashboard. "
        "Restore a backup (dsopt db restore), or create the study under another name."
    )


def study_id_of(connection: sa.Connection, name: str) -> int:
    """The id of Optuna's study of that name; nobody else adds trials to it until the transaction ends.

    Raises:
        DsoptError: somebody has deleted it.
    """
    query = sa.select(_STUDIES.c.study_id).where(_STUDIES.c.study_name == name).with_for_update()
    found = connection.execute(query).scalar_one_or_none()
    if found is None:
        raise part_deleted(name)
    return int(found)


def add_trial(connection: sa.Connection, study: str, trial: FrozenTrial) -> int:
    """Adds a trial to Optuna's study of that name, and returns its number."""
    study_id = study_id_of(connection, study)
    others = _TRIALS.alias()
    values = {
        "study_id": study_id,
        "number": sa.select(sa.func.count()).where(others.c.study_id == study_id).scalar_subquery(),
        "state": trial.state,
        "datetime_start": trial.datetime_start or datetime.now(),
        "datetime_complete": trial.datetime_complete or (datetime.now() if trial.state.is_finished() else None),
    }
    insert = sa.insert(_TRIALS).values(values).returning(_TRIALS.c.trial_id, _TRIALS.c.number)
    trial_id, number = connection.execute(insert).one()
    params = [
        {
            "trial_id": trial_id,
            "param_name": name,
            "param_value": trial.distributions[name].to_internal_repr(value),
            "distribution_json": distribution_to_json(trial.distributions[name]),
        }
        for name, value in trial.params.items()
    ]
    if params:
        connection.execute(sa.insert(_PARAMS), params)
    _put(connection, _ATTRIBUTES, trial_id, trial.user_attrs)
    _put(connection, _SYSTEM_ATTRIBUTES, trial_id, trial.system_attrs)
    if trial.value is not None:
        _value(connection, trial_id, trial.value)
    return int(number)


def trial_id_of(connection: sa.Connection, study: str, number: int) -> int | None:
    """The id of a running trial, which only this transaction can change; None: it is over, or gone."""
    query = (
        sa.select(_TRIALS.c.trial_id)
        .join(_STUDIES, _STUDIES.c.study_id == _TRIALS.c.study_id)
        .where(_STUDIES.c.study_name == study, _TRIALS.c.number == number, _TRIALS.c.state == TrialState.RUNNING)
        .with_for_update(of=_TRIALS)
    )
    return connection.execute(query).scalar_one_or_none()


def open_trials(connection: sa.Connection, studies: list[str]) -> set[tuple[str, int]]:
    """The trials of Optuna's studies of these names that are not over, each by study and number."""
    query = (
        sa.select(_STUDIES.c.study_name, _TRIALS.c.number)
        .join(_STUDIES, _STUDIES.c.study_id == _TRIALS.c.study_id)
        .where(_STUDIES.c.study_name.in_(studies), _TRIALS.c.state.in_(OPEN))
    )
    return {(name, number) for name, number in connection.execute(query)}


def mark(connection: sa.Connection, trial_id: int, attributes: Attributes) -> None:
    """Writes user attributes, which the dashboard shows."""
    _put(connection, _ATTRIBUTES, trial_id, attributes)


def report(connection: sa.Connection, trial_id: int, step: int, value: float) -> None:
    """Writes an intermediate value, unless the step has one."""
    stored, kind = models.TrialIntermediateValueModel.intermediate_value_to_stored_repr(value)
    row = {"trial_id": trial_id, "step": step, "intermediate_value": stored, "intermediate_value_type": kind}
    connection.execute(insert_into(connection.dialect.name)(_INTERMEDIATE).values(row).on_conflict_do_nothing())


def end_trial(
    connection: sa.Connection,
    study: str,
    number: int,
    state: TrialState,
    attributes: Attributes,
    *,
    value: float | None = None,
    fits: bool = True,
    states: Sequence[TrialState] = (TrialState.RUNNING,),
) -> Ended | None:
    """Ends a running trial: its attributes, its value if it has one, and whether it violates `fits`.

    None, and nothing changed: the trial is gone, or in none of these `states`, because somebody else has ended it.
    """
    study_id = sa.select(_STUDIES.c.study_id).where(_STUDIES.c.study_name == study).scalar_subquery()
    update = sa.update(_TRIALS).where(
        _TRIALS.c.study_id == study_id, _TRIALS.c.number == number, _TRIALS.c.state.in_(states)
    )
    end = {"state": state, "datetime_complete": datetime.now()}
    ended = connection.execute(update.values(end).returning(_TRIALS.c.trial_id, _TRIALS.c.study_id)).one_or_none()
    if ended is None:
        return None
    trial_id, study_id = ended
    _put(connection, _ATTRIBUTES, trial_id, attributes)
    if not fits:
        _put(connection, _SYSTEM_ATTRIBUTES, trial_id, {FITS: 1.0})
    if value is not None:
        _value(connection, trial_id, value)
    return Ended(trial_id=trial_id, study_id=study_id)


def put_note(connection: sa.Connection, trial: Ended, make: Callable[[], str]) -> None:
    """Writes a note on a trial, but does not wait long for others. In its transaction, nothing may follow.

    Raises:
        NoNote: there is none; what the transaction has written before can be committed.
    """
    is_postgres = connection.dialect.name == "postgresql"
    limit = f"; SET LOCAL lock_timeout = '{_NOTE_MILLISECONDS}ms'" if is_postgres else ""
    try:
        connection.exec_driver_sql(f"SAVEPOINT note{limit}")  # its release, at the commit, needs no statement
        written = note_attributes(make(), trial.trial_id)
        _upsert(connection, _STUDY_SYSTEM_ATTRIBUTES, "study_id", trial.study_id, written)
    except Exception as error:
        try:
            connection.exec_driver_sql("ROLLBACK TO SAVEPOINT note")
        except sa.exc.SQLAlchemyError:
            raise error from None  # nor is what the transaction has written before
        raise NoNote(database_error(error) or str(error)) from error


def mark_study(connection: sa.Connection, study: str, attributes: Attributes) -> None:
    """Writes user attributes of Optuna's study of that name."""
    _upsert(connection, _STUDY_ATTRIBUTES, "study_id", study_id_of(connection, study), attributes)


def names_in_optuna(connection: sa.Connection) -> list[str]:
    """The names of all of Optuna's studies, oldest first: parts of dsopt's, and the user's own."""
    return list(connection.execute(sa.select(_STUDIES.c.study_name).order_by(_STUDIES.c.study_id)).scalars())


def delete_studies(connection: sa.Connection, names: Collection[str]) -> None:
    """Removes Optuna's studies of these names, with all that belongs to them; waits for who writes on a trial."""
    studies = sa.select(_STUDIES.c.study_id).where(_STUDIES.c.study_name.in_(names))
    trials = sa.select(_TRIALS.c.trial_id).where(_TRIALS.c.study_id.in_(studies))
    connection.execute(trials.order_by(_TRIALS.c.trial_id).with_for_update())
    for table in reversed(models.BaseModel.metadata.sorted_tables):
        if table is not _TRIALS and "trial_id" in table.c:
            connection.execute(sa.delete(table).where(table.c.trial_id.in_(trials)))
    for table in reversed(models.BaseModel.metadata.sorted_tables):
        if table is not _STUDIES and "study_id" in table.c:
            connection.execute(sa.delete(table).where(table.c.study_id.in_(studies)))
    connection.execute(sa.delete(_STUDIES).where(_STUDIES.c.study_name.in_(names)))


def _value(connection: sa.Connection, trial_id: int, value: float) -> None:
    stored, kind = models.TrialValueModel.value_to_stored_repr(value)
    row = {"trial_id": trial_id, "objective": 0, "value": stored, "value_type": kind}
    connection.execute(sa.insert(_VALUES).values(row))


def _put(connection: sa.Connection, table: sa.Table, trial_id: int, attributes: Attributes) -> None:
    _upsert(connection, table, "trial_id", trial_id, attributes)


def _upsert(connection: sa.Connection, table: sa.Table, owner: str, owner_id: int, attributes: Attributes) -> None:
    if attributes:
        # one document for all of them: SQLAlchemy compiles a statement anew for each number of rows
        document = json.dumps({key: json.dumps(value) for key, value in attributes.items()})
        connection.execute(_upsert_into(connection.dialect.name, table, owner), {"id": owner_id, "document": document})


@cache
def _upsert_into(dialect: str, table: sa.Table, owner: str) -> sa.Insert:
    """Writes the attributes that a JSON document holds, each of them again as JSON."""
    document = sa.bindparam("document", type_=sa.Text)
    is_postgres = dialect == "postgresql"
    each = sa.func.json_each_text(sa.cast(document, sa.JSON)) if is_postgres else sa.func.json_each(document)
    rows = each.table_valued("key", "value")
    chosen = sa.select(sa.bindparam("id", type_=sa.Integer), rows.c.key, rows.c.value).where(sa.true())
    insert = insert_into(dialect)(table).from_select([owner, "key", "value_json"], chosen)
    update = {"value_json": insert.excluded.value_json}
    upsert: sa.Insert = insert.on_conflict_do_update(index_elements=(owner, "key"), set_=update)
    return upsert
