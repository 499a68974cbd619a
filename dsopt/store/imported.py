"""Trials that another tuner has run, kept as if dsopt had: an Optuna trial with its outcome, and a claim."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from dsopt.store.keeping import keep_unclaimed
from dsopt.store.studies import Store, StoredStudy


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
    """Keeps trials whose candidates nobody has claimed yet, and gives those; needs the study's lock."""
    return keep_unclaimed(store, study, trials, _frozen)


def _frozen(trial: ImportedTrial) -> FrozenTrial:
    """The trial as Optuna keeps it: COMPLETE with its metric, or PRUNED with the constraint that it broke."""
    attrs = {"candidate": trial.candidate, "phase": "range", "imported": trial.source}
    common: dict[str, Any] = {"params": dict(trial.params), "distributions": dict(trial.distributions)}
    if trial.value is not None:
        return create_trial(state=TrialState.COMPLETE, value=trial.value, user_attrs=attrs, **common)
    attrs |= {"reason": "oom", "message": trial.message}
    return create_trial(state=TrialState.PRUNED, constraints={"fits": 1.0}, user_attrs=attrs, **common)
