"""Stores trials that ran elsewhere, as if a worker of the study had run them."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

import sqlalchemy as sa
from optuna.trial import FrozenTrial

from dsopt.store import queries
from dsopt.store.studies import Store, StoredStudy
from dsopt.store.trials import add_once
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
    """Stores runs whose candidates nobody has claimed yet; needs the study's lock.

    A trial counts when its claim exists. The claim is written last: if an interruption leaves a trial without one, the
    next call picks it up. The claim has no worker, and its trial is over, so that no worker adopts it.

    Args:
        trial_of: the finished trial that a run becomes.
        beside: writes what belongs to a run's claim, in one transaction with it; given the trial's number.

    Returns:
        Those that it stored.
    """
    with store.engine.connect() as connection:
        claims = queries.claims_of(connection, study.id)
    claimed = {(row["stage"], row["candidate"]) for row in claims if row["round"] == 0}
    kept = []
    for run in runs:
        if (run.part, run.candidate) in claimed:
            continue
        claimed.add((run.part, run.candidate))
        number = add_once(store.optuna_study(study, run.part), trial_of(run), _numbers(claims, run.part))
        with store.engine.begin() as connection:
            is_new = queries.insert_claim(
                connection,
                study_id=study.id,
                stage=run.part,
                candidate=run.candidate,
                round_=0,
                trial=number,
                worker_id=None,
            )
            assert is_new, "nobody else claims while the study is locked"
            beside(connection, run, number)
        kept.append(run)
    return kept


def _numbers(claims: Sequence[queries.Row], part: str) -> Collection[int]:
    """Numbers of a part's claimed trials."""
    return {row["trial"] for row in claims if row["stage"] == part}
