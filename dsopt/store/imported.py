"""Trials that another tuner has run, kept as if dsopt had: an Optuna trial with its outcome, and a claim."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from dsopt.store import queries
from dsopt.store.studies import Store, StoredStudy
from dsopt.store.trials import add_once


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrial:
    """What is known of a candidate that was run elsewhere.

    Attributes:
        part: `z0` … `z3`.
        candidate: the candidate's canonical name.
        params, distributions: as Optuna keeps the part's trials.
        value: the metric in the study's unit; None when it ran out of memory.
        message: what was said when it did.
        source: the folder it was read from.
    """

    part: str
    candidate: str
    params: Mapping[str, Any]
    distributions: Mapping[str, BaseDistribution]
    value: float | None
    message: str
    source: str


def keep_imported(store: Store, study: StoredStudy, trials: Sequence[ImportedTrial]) -> list[ImportedTrial]:
    """Keeps trials whose candidates nobody has claimed yet; needs the study's lock.

    A trial counts when its claim exists, and that is written last: one that an interruption left without is taken up
    the next time. The claim has no worker, and its trial is over, so that no worker adopts it.

    Returns:
        Those that were kept.
    """
    with store.engine.connect() as connection:
        claims = queries.claims_of(connection, study.id)
    claimed = {(row["stage"], row["candidate"]) for row in claims if row["round"] == 0}
    kept = []
    for trial in trials:
        if (trial.part, trial.candidate) in claimed:
            continue
        claimed.add((trial.part, trial.candidate))
        numbers = {row["trial"] for row in claims if row["stage"] == trial.part}
        number = add_once(store.optuna_study(study, trial.part), _frozen(trial), numbers)
        with store.engine.begin() as connection:
            is_new = queries.insert_claim(
                connection,
                study_id=study.id,
                stage=trial.part,
                candidate=trial.candidate,
                round_=0,
                trial=number,
                worker_id=None,
            )
        assert is_new, "nobody else claims while the study is locked"
        kept.append(trial)
    return kept


def _frozen(trial: ImportedTrial) -> FrozenTrial:
    """The trial as Optuna keeps it: COMPLETE with its metric, or PRUNED with the constraint that it broke."""
    attrs = {"candidate": trial.candidate, "phase": "range", "imported": trial.source}
    common: dict[str, Any] = {"params": dict(trial.params), "distributions": dict(trial.distributions)}
    if trial.value is not None:
        return create_trial(state=TrialState.COMPLETE, value=trial.value, user_attrs=attrs, **common)
    attrs |= {"reason": "oom", "message": trial.message}
    return create_trial(state=TrialState.PRUNED, constraints={"fits": 1.0}, user_attrs=attrs, **common)
