"""Stores trials that ran elsewhere, as if a worker of the study had run them."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import sqlalchemy as sa
from optuna.trial import FrozenTrial

from dsopt.store import claims, records
from dsopt.store.optuna_rows import add_trial
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.transactions import changing
from dsopt.study.part import Part


class RunElsewhere(Protocol):
    """A candidate that ran elsewhere: its part, and its name."""

    @property
    def part(self) -> Part: ...

    @property
    def candidate(self) -> str: ...


_T = TypeVar("_T", bound=RunElsewhere)


def keep_unclaimed(
    store: Store,
    study: StoredStudy,
    runs: Sequence[_T],
    trial_of: Callable[[_T], FrozenTrial],
    beside: Callable[[sa.Connection, _T, int], None] = lambda _connection, _run, _number: None,
) -> list[_T]:
    """Stores runs whose candidates nobody has claimed yet, each in one transaction with its claim.

    The claim has no worker, and its trial is over, so that no worker adopts it. After an interruption, the next call
    goes on.

    Args:
        store: the storage.
        study: an unfinished study.
        runs: what ran elsewhere.
        trial_of: the finished trial that a run becomes.
        beside: writes what belongs to a run's claim; given the trial's number.

    Returns:
        Those that it stored.

    Raises:
        StudyGone: the study was deleted meanwhile.
    """
    kept = []
    for run in runs:
        with changing(store.engine, study.id) as connection:
            trial = trial_of(run)
            number = add_trial(connection, f"{study.name}/{run.part}", trial)
            claim = {
                "study_id": study.id,
                "stage": run.part,
                "candidate": run.candidate,
                "round": 0,
                "trial": number,
                "worker_id": None,
                "begun": records.begun(trial),
                "ended": records.ended_by(trial),
            }
            if not claims.insert(connection, claim):
                connection.rollback()
                continue
            beside(connection, run, number)
        kept.append(run)
    return kept
