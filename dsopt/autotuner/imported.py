"""Keeps trials that another tuner has run as if dsopt had: an Optuna trial with its outcome, and a claim."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from dsopt.store.keeping import keep_unclaimed
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.part import Part
from dsopt.study.trial_attributes import TrialAttributes


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrial:
    """What dsopt knows about a candidate that ran elsewhere.

    Attributes:
        part: of its ZeRO stage.
        candidate: the candidate's canonical name.
        params, distributions: in the form of the part's trials in Optuna.
        value: the metric in the study's unit; None if it ran out of memory.
        message: the error message if it did.
        source: the folder that it was read from.
    """

    part: Part
    candidate: str
    params: Mapping[str, Any]
    distributions: Mapping[str, BaseDistribution]
    value: float | None
    message: str
    source: str


def keep_imported(store: Store, study: StoredStudy, trials: Sequence[ImportedTrial]) -> list[ImportedTrial]:
    """Keeps trials whose candidates nobody has claimed yet, and returns them."""
    return keep_unclaimed(store, study, trials, _frozen)


def _frozen(trial: ImportedTrial) -> FrozenTrial:
    """The trial as Optuna keeps it: COMPLETE with its metric, or PRUNED with the constraint that it broke."""
    attrs = TrialAttributes(candidate=trial.candidate, phase="range", imported=trial.source)
    if trial.value is None:
        attrs["reason"], attrs["message"] = "oom", trial.message
    common: dict[str, Any] = {
        "params": dict(trial.params), "distributions": dict(trial.distributions), "user_attrs": dict(attrs),
    }  # fmt: skip
    if trial.value is not None:
        return create_trial(state=TrialState.COMPLETE, value=trial.value, **common)
    return create_trial(state=TrialState.PRUNED, constraints={"fits": 1.0}, **common)
