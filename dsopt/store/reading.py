"""Reads what a study knows: its state, its marks, and its trials as dsopt's own tables keep them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.trial import FrozenTrial

from dsopt.errors import DsoptError
from dsopt.store import claims, queries
from dsopt.store.records import trial_of
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.part import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A claimed trial.

    Attributes:
        part: its part.
        name, round: the candidate that it was claimed for, and the round.
        trial: the trial.
        is_free: whether it has no worker although it is not over.
    """

    part: Part
    name: str
    round: int
    trial: FrozenTrial
    is_free: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What has changed of a study since a version, all of one moment.

    Attributes:
        version, decisions: now.
        incarnation: of the database (`clock.incarnation`).
        marks: of its parts.
        count: how many trials are claimed.
        changed: those that have changed.
    """

    version: int
    decisions: int
    incarnation: int
    marks: Mapping[str, Mapping[str, Any]]
    count: int
    changed: Sequence[Kept]


def known_since(store: Store, study: StoredStudy, version: int) -> Known:
    """What has changed of a study since a version; -1 for all of it.

    Raises:
        DsoptError: the study was deleted, or somebody else wrote something that cannot be read.
    """
    with store.engine.connect() as connection:
        rows = queries.study_since(connection, study.id, version)
    if not rows:
        raise DsoptError(f"study '{study.name}' was deleted meanwhile.")
    first = rows[0]
    return Known(
        version=first["version"],
        decisions=first["decisions"],
        incarnation=first["incarnation"],
        marks=queries.marks_in(first["marks"]),
        count=first["claims"],
        changed=[_kept(row) for row in rows if row["id"] is not None],
    )


def kept_trials(store: Store, study: StoredStudy, names: Collection[str] | None = None) -> list[Kept]:
    """Every claimed trial of a study, or those of the candidates that are named, in the order of parts and trials."""
    with store.engine.connect() as connection:
        return [_kept(row) for row in claims.all_of(connection, study.id, names)]


def marks_of(store: Store, study: StoredStudy, part: Part) -> Mapping[str, Any]:
    """What a part of a study is marked with; nothing if the study was deleted."""
    with store.engine.connect() as connection:
        now = queries.study_now(connection, study.id)
    return {} if now is None else queries.marks_in(now["marks"]).get(part, {})


def _kept(row: queries.Row) -> Kept:
    return Kept(
        part=Part(row["stage"]),
        name=row["candidate"],
        round=row["round"],
        trial=trial_of(row),
        is_free=row["worker_id"] is None and row["ended"] is None,
    )
