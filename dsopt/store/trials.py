"""How outcomes stand in Optuna: states, values, constraints, and headline numbers as flat user attributes."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from dsopt.experiment.events import Engine
from dsopt.experiment.figures import figures_from_json
from dsopt.experiment.health import is_sound
from dsopt.experiment.outcome import Failed, Infeasible, Measured, Outcome, Slow, figures_of
from dsopt.store.queries import Row

_MESSAGE_LENGTH = 2000  # what a page of the dashboard can bear


def open_trial(study: optuna.Study, number: int) -> Trial:
    """The trial of that number as Optuna's `Trial`, also when another process asked for it."""
    storage: optuna.storages.BaseStorage = study._storage
    return Trial(study, storage.get_trial_id_from_study_id_trial_number(study._study_id, number))


def mark(trial: Trial, **attrs: str | float | bool) -> None:
    """Writes user attributes, which the dashboard shows. Each takes some milliseconds."""
    for key, value in attrs.items():
        trial.set_user_attr(key, value)


def last_reported_step(trial: Trial) -> int:
    """The last step with an intermediate value, of an attempt whose worker died; -1 without one."""
    known = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
    return max(known, default=-1)


def tell(trial: Trial, outcome: Outcome, metric: str, run_seconds: float | None) -> None:
    """Tells Optuna an outcome; a trial that somebody else has finished meanwhile is left as it is.

    Measured is COMPLETE with the metric. Slow is PRUNED with the metric so far. Infeasible is PRUNED with a constraint,
    which samplers that know constraints learn from. Failed and cancelled are FAIL. No failure ever becomes a number.
    """
    try:
        if isinstance(outcome, Measured | Slow):
            figures = figures_of(outcome)
            if "world_size" not in trial.user_attrs:
                mark_engine(trial, figures.engine)  # the worker that saw it has died
        mark(trial, **_told(outcome, metric, run_seconds))
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
    attrs: Mapping[str, str | int],
    params: Mapping[str, Any],
    distributions: Mapping[str, BaseDistribution],
) -> FrozenTrial:
    """The trial that `tell` would make of an outcome, to be added as a whole; `attrs` are further user attributes."""
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
    """Tells Optuna that a trial was refused before its launch."""
    mark(trial, reason=reason, message=message)
    if reason == "predicted_oom":
        trial.set_constraint("fits", 1.0)
    trial.study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)


def tell_nobodys(study: optuna.Study, number: int) -> None:
    """Ends a trial that a worker died over before it had claimed a candidate."""
    trial = open_trial(study, number)
    mark(trial, reason="lost")
    trial.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)


def tell_like(trial: Trial, other: FrozenTrial, name: str) -> None:
    """Tells a trial the outcome of another that ran the very same configuration."""
    for key, value in other.user_attrs.items():
        if key not in ("candidate", "round", "phase", "run_seconds", "taken_over"):
            trial.set_user_attr(key, value)
    trial.set_user_attr("measured_as", name)
    if other.state == TrialState.PRUNED:
        trial.set_constraint("fits", 1.0)
    value = other.value if other.state == TrialState.COMPLETE else None
    trial.study.tell(trial, value, state=other.state, skip_if_finished=True)


def recorded_outcome(attempt: Row) -> Outcome | None:
    """The outcome of a finished attempt as it was recorded; None where the attempt says nothing of its candidate."""
    reason, message = attempt["reason"], attempt["message"]
    match attempt["state"]:
        case "measured":
            return figures_from_json(json.loads(attempt["details"]))
        case "slow":
            details = json.loads(attempt["details"])
            return Slow(so_far=figures_from_json(details), best=details["slower_than"], message=message)
        case "infeasible":
            return Infeasible(reason=reason, message=message)
        case "failed" if reason != "lost":
            return Failed(reason=reason, message=message)
        case _:
            return None


def mark_engine(trial: Trial, engine: Engine) -> None:
    """Writes what the engine said of itself, while the run still goes on: it takes some milliseconds."""
    mark(trial, **_engine(engine))


def _engine(engine: Engine) -> dict[str, Any]:
    return {key: value for key, value in asdict(engine).items() if key != "rank" and value is not None}


def _told(outcome: Outcome, metric: str, run_seconds: float | None) -> dict[str, Any]:
    """The user attributes that tell an outcome."""
    told = _headline(figures_of(outcome)) if isinstance(outcome, Measured | Slow) else {}
    if isinstance(outcome, Slow):
        told["value_so_far"] = outcome.so_far.metric(metric)
    if not isinstance(outcome, Measured):
        told |= {"reason": outcome.reason, "message": outcome.message[:_MESSAGE_LENGTH]}
    return told if run_seconds is None else {**told, "run_seconds": run_seconds}


def _headline(outcome: Measured) -> dict[str, Any]:
    m = outcome.measurement
    headline = {
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
    troubles = {
        "drifting": m.drifting,
        "unsound": not is_sound(outcome),
        "skipped_percent": outcome.skipped_share * 100,
        "nonfinite_loss_percent": outcome.nonfinite_share * 100,
        "skipped_in_warmup": sum(index < m.warmup_steps for index in outcome.skipped),
    }
    return headline | {name: value for name, value in troubles.items() if value}
