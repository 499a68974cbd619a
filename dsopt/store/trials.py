"""How outcomes stand in Optuna: states, values, constraints, and headline numbers as flat user attributes."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import Trial, TrialState

from dsopt.experiment.events import Engine
from dsopt.experiment.measure import Measurement
from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Measured, Outcome

_MESSAGE_LENGTH = 2000  # what a page of the dashboard can bear


def open_trial(study: optuna.Study, number: int) -> Trial:
    """The trial of that number as Optuna's `Trial`, also when another process asked for it."""
    storage: optuna.storages.BaseStorage = study._storage
    return Trial(study, storage.get_trial_id_from_study_id_trial_number(study._study_id, number))


def mark(trial: Trial, **attrs: str | int) -> None:
    """Says in the dashboard what a trial is about, before it runs."""
    for key, value in attrs.items():
        trial.set_user_attr(key, value)


def tell(study: optuna.Study, trial: Trial, outcome: Outcome, metric: str, attrs: Mapping[str, Any]) -> None:
    """Tells Optuna an outcome; a trial that somebody else has finished meanwhile is left as it is.

    Measured is COMPLETE with the metric. Infeasible is PRUNED with a constraint, which samplers that know constraints
    learn from. Failed and cancelled are FAIL. No failure ever becomes a number.
    """
    try:
        for key, value in {**attrs, **_headline(outcome)}.items():
            trial.set_user_attr(key, value)
        if isinstance(outcome, Measured):
            study.tell(trial, outcome.metric(metric), skip_if_finished=True)
        elif isinstance(outcome, Infeasible):
            trial.set_constraint("fits", 1.0)
            study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        else:
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
    except UpdateFinishedTrialError:
        return


def tell_pruned(study: optuna.Study, trial: Trial, reason: str, message: str) -> None:
    """Tells Optuna that a trial was refused before its launch."""
    trial.set_user_attr("outcome", "infeasible")
    trial.set_user_attr("reason", reason)
    trial.set_user_attr("message", message)
    if reason == "predicted_oom":
        trial.set_constraint("fits", 1.0)
    study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)


def tell_nobodys(study: optuna.Study, number: int) -> None:
    """Ends a trial that a worker died over before it had claimed a candidate."""
    trial = open_trial(study, number)
    trial.set_user_attr("outcome", "failed")
    trial.set_user_attr("reason", "lost")
    study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)


def tell_like(study: optuna.Study, trial: Trial, other: optuna.trial.FrozenTrial, name: str) -> None:
    """Tells a trial the outcome of another that ran the very same configuration."""
    for key, value in other.user_attrs.items():
        if key not in ("candidate", "round", "phase"):
            trial.set_user_attr(key, value)
    trial.set_user_attr("measured_as", name)
    if other.state == TrialState.PRUNED:
        trial.set_constraint("fits", 1.0)
    value = other.value if other.state == TrialState.COMPLETE else None
    study.tell(trial, value, state=other.state, skip_if_finished=True)


def outcome_from_details(details: Mapping[str, Any]) -> Measured:
    """The measured outcome that `metrics.json` (or the same text in the database) describes."""
    engine = Engine(**details["engine"])
    flops = details["FLOPS_per_gpu"]
    measurement = Measurement(**details["measurement"])
    return Measured(
        measurement=measurement,
        step_seconds=tuple(details["step_seconds"]),
        engine=engine,
        peak_memory_bytes=details["peak_memory_bytes"],
        activation_bytes=details["activation_bytes"],
        flops_per_step=None if flops is None else flops * measurement.step_seconds,
    )


def _headline(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Infeasible | Failed | Cancelled):
        reason, message = outcome.reason, outcome.message[:_MESSAGE_LENGTH]
        return {"outcome": outcome.state, "reason": reason, "message": message}
    m = outcome.measurement
    engine = asdict(outcome.engine)
    facts = ("num_params", "trainable_params", "world_size", "dtype", "device", "device_memory_bytes", "zero_stage")
    return {
        "outcome": "measured",
        "samples_per_second": m.samples_per_second,
        "step_milliseconds": m.step_seconds * 1000,
        "step_milliseconds_low": (m.step_seconds - m.half_width_seconds) * 1000,
        "step_milliseconds_high": (m.step_seconds + m.half_width_seconds) * 1000,
        "interval_percent": m.relative_half_width * 100,
        "measured_steps": m.measured_steps,
        "warmup_steps": m.warmup_steps,
        "drifting": m.drifting,
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "activation_bytes": outcome.activation_bytes,
        "micro_batch": engine["micro_batch"],
        "gas": engine["gas"],
        **{name: engine[name] for name in facts},
    }
