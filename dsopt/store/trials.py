"""How outcomes are recorded in Optuna: states, values, constraints, and headline numbers as flat user attributes."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, cast

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from dsopt.experiment.health import is_sound
from dsopt.experiment.outcome import Infeasible, Measured, Outcome, Slow, figures_of, from_json
from dsopt.protocol.events import Engine
from dsopt.store.queries import Row
from dsopt.study.trial_attributes import TrialAttributes

_MESSAGE_LENGTH = 2000  # what a page of the dashboard can show well


def open_trial(study: optuna.Study, number: int) -> Trial:
    """The trial of that number as Optuna's `Trial`, also when another process asked for it."""
    storage: optuna.storages.BaseStorage = study._storage
    return Trial(study, storage.get_trial_id_from_study_id_trial_number(study._study_id, number))


def mark(trial: Trial, attrs: TrialAttributes) -> None:
    """Writes user attributes, which the dashboard shows. Each takes some milliseconds."""
    for key, value in attrs.items():
        trial.set_user_attr(key, value)


def last_reported_step(trial: Trial) -> int:
    """The last step with an intermediate value, from an attempt whose worker died; -1 if there is none."""
    known = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
    return max(known, default=-1)


def tell(trial: Trial, outcome: Outcome, metric: str, run_seconds: float | None) -> None:
    """Tells Optuna an outcome; leaves a trial unchanged that somebody else finished meanwhile.

    Measured is COMPLETE with the metric. Slow is PRUNED with the metric so far. Infeasible is PRUNED with a constraint,
    from which samplers that support constraints learn. Failed and cancelled are FAIL. A failure never becomes a number.
    """
    try:
        if isinstance(outcome, Measured | Slow):
            figures = figures_of(outcome)
            if "world_size" not in trial.user_attrs:
                mark_engine(trial, figures.engine)  # the worker that saw it has died
        mark(trial, _told(outcome, metric, run_seconds))
        if isinstance(outcome, Measured):
            trial.study.tell(trial, outcome.metric(metric), skip_if_finished=True)
        elif isinstance(outcome, Slow):
            trial.study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        elif isinstance(outcome, Infeasible):
            trial.set_constraint("fits", 1.0)
            trial.study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        else:
            trial.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
    except UpdateFinishedTrialError:
        return


def finished_trial(
    outcome: Measured | Slow | Infeasible,
    metric: str,
    run_seconds: float | None,
    *,
    attrs: TrialAttributes,
    params: Mapping[str, Any],
    distributions: Mapping[str, BaseDistribution],
) -> FrozenTrial:
    """The trial that `tell` would leave for an outcome, to be added as a whole; `attrs` are further user attributes."""
    seen = {} if isinstance(outcome, Infeasible) else _engine(figures_of(outcome).engine)
    return create_trial(
        state=TrialState.COMPLETE if isinstance(outcome, Measured) else TrialState.PRUNED,
        value=outcome.metric(metric) if isinstance(outcome, Measured) else None,
        params=dict(params),
        distributions=dict(distributions),
        user_attrs={**attrs, **seen, **_told(outcome, metric, run_seconds)},
        constraints={"fits": 1.0} if isinstance(outcome, Infeasible) else None,
    )


def add_once(study: optuna.Study, trial: FrozenTrial, claimed: Collection[int]) -> int:
    """Adds a finished trial, unless an interruption left the same one behind without a claim.

    Args:
        claimed: numbers of the study's trials that are claimed.

    Returns:
        The trial's number.
    """
    number = _find_unclaimed(study, trial, claimed)
    if number is None:
        study.add_trial(trial)
        number = _find_unclaimed(study, trial, claimed)
    assert number is not None
    return number


def _find_unclaimed(study: optuna.Study, trial: FrozenTrial, claimed: Collection[int]) -> int | None:
    for known in study.get_trials(deepcopy=False, states=(trial.state,)):
        same = known.user_attrs == trial.user_attrs and known.value == trial.value
        if same and known.number not in claimed:
            return known.number
    return None


def tell_pruned(trial: Trial, reason: str, message: str) -> None:
    """Tells Optuna that dsopt refused a trial before its launch."""
    mark(trial, TrialAttributes(reason=reason, message=message))
    if reason == "predicted_oom":
        trial.set_constraint("fits", 1.0)
    trial.study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)


def tell_nobodys(study: optuna.Study, number: int) -> None:
    """Ends a trial whose worker died before it had claimed a candidate."""
    trial = open_trial(study, number)
    mark(trial, TrialAttributes(reason="lost"))
    trial.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)


def tell_like(trial: Trial, other: FrozenTrial, name: str) -> None:
    """Gives a trial the outcome of another that ran the very same configuration."""
    for key, value in other.user_attrs.items():
        if key not in ("candidate", "round", "phase", "run_seconds", "taken_over"):
            trial.set_user_attr(key, value)
    mark(trial, TrialAttributes(measured_as=name))
    if other.state == TrialState.PRUNED:
        trial.set_constraint("fits", 1.0)
    value = other.value if other.state == TrialState.COMPLETE else None
    trial.study.tell(trial, value, state=other.state, skip_if_finished=True)


def recorded_outcome(attempt: Row) -> Outcome | None:
    """The recorded outcome of a finished attempt; None if the attempt says nothing about its candidate."""
    if attempt["state"] in ("running", "cancelled") or attempt["reason"] == "lost":
        return None
    figures = json.loads(attempt["details"] or "{}")
    return from_json({**figures, **{key: attempt[key] for key in ("state", "reason", "message")}})


def mark_engine(trial: Trial, engine: Engine) -> None:
    """Writes what the engine reported, while the run still lasts: this takes some milliseconds."""
    for key, value in _engine(engine).items():
        trial.set_user_attr(key, value)


def _engine(engine: Engine) -> dict[str, Any]:
    return {key: value for key, value in asdict(engine).items() if key != "rank" and value is not None}


def _told(outcome: Outcome, metric: str, run_seconds: float | None) -> TrialAttributes:
    """The user attributes that describe an outcome."""
    told = _headline(figures_of(outcome)) if isinstance(outcome, Measured | Slow) else TrialAttributes()
    if isinstance(outcome, Slow):
        told["value_so_far"] = outcome.so_far.metric(metric)
    if not isinstance(outcome, Measured):
        told["reason"], told["message"] = outcome.reason, outcome.message[:_MESSAGE_LENGTH]
    if run_seconds is not None:
        told["run_seconds"] = run_seconds
    return told


def _headline(outcome: Measured) -> TrialAttributes:
    m = outcome.measurement
    headline: TrialAttributes = {
        "samples_per_second": m.samples_per_second,
        "step_milliseconds": m.step_seconds * 1000,
        "interval_percent": m.relative_half_width * 100,
        "steps": f"{m.measured_steps} after {m.warmup_steps} of warm-up",
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "peak_allocated_bytes": outcome.peak_allocated_bytes,
        "outside_bytes": outcome.outside_bytes,
        "activation_bytes": outcome.activation_bytes,
        "rows": outcome.rows,
    }
    if outcome.flops_per_step is not None:
        headline["flops_per_step"] = outcome.flops_per_step
    troubles: TrialAttributes = {
        "drifting": m.drifting,
        "unsound": not is_sound(outcome),
        "skipped_percent": outcome.skipped_share * 100,
        "nonfinite_loss_percent": outcome.nonfinite_share * 100,
        "skipped_in_warmup": sum(index < m.warmup_steps for index in outcome.skipped),
    }
    return cast(TrialAttributes, {**headline, **{name: value for name, value in troubles.items() if value}})
