"""How outcomes are recorded in Optuna: states, values, constraints, and headline numbers as flat user attributes."""

import json
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

import sqlalchemy as sa
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from dsopt.experiment.health import is_sound
from dsopt.experiment.outcome import Cancelled, Infeasible, Measured, Outcome, Slow, figures_of, from_json
from dsopt.store import claims, optuna_rows, records
from dsopt.store.optuna_notes import trial_note
from dsopt.store.queries import Row
from dsopt.store.stored import StoredStudy
from dsopt.study.part import Part
from dsopt.study.trial_attributes import TrialAttributes, engine_attributes

_LOG: Final = logging.getLogger(__name__)
_MESSAGE_LENGTH = 2000  # what a page of the dashboard can show well


def end(
    connection: sa.Connection,
    study: StoredStudy,
    part: Part,
    number: int,
    outcome: Outcome,
    run_seconds: float | None,
    attributes: TrialAttributes,
) -> None:
    """Records an outcome of a claimed trial and tells Optuna; leaves one unchanged whose outcome is known.

    Measured is COMPLETE with the metric. Slow is PRUNED with the metric so far. Infeasible is PRUNED with a constraint,
    from which samplers that support constraints learn. Failed and cancelled are FAIL. A failure never becomes a number.
    """
    metric = study.spec.autotuning.metric
    seen = engine_attributes(figures_of(outcome).engine) if isinstance(outcome, Measured | Slow) else {}
    told = {**attributes, **seen, **_told(outcome, metric, run_seconds)}
    state, value = _state(outcome), outcome.metric(metric) if isinstance(outcome, Measured) else None
    if claims.end(
        connection, study_id=study.id, stage=part, trial=number, ended=records.ended(state, value, told)
    ) or isinstance(outcome, Cancelled):  # which has given its claim back
        fits, name = not isinstance(outcome, Infeasible), f"{study.name}/{part}"
        trial = optuna_rows.end_trial(connection, name, number, state, told, value=value, fits=fits)
        if trial is not None:
            note = partial(trial_note, outcome, metric, study.spec.autotuning.unit, run_seconds)
            try:  # last of all: what keeps it from that may not keep the outcome
                optuna_rows.put_note(connection, trial, note)
            except optuna_rows.NoNote as why:
                _LOG.warning("Optuna's trial %s of %s has no note: %s", number, name, why)


def end_foreign(connection: sa.Connection, study: StoredStudy, part: Part, number: int, message: str) -> bool:
    """Ends a trial that is not the study's own. False: it is over."""
    attributes = TrialAttributes(reason="foreign", message=message[:_MESSAGE_LENGTH])
    name, states = f"{study.name}/{part}", optuna_rows.OPEN
    return optuna_rows.end_trial(connection, name, number, TrialState.FAIL, attributes, states=states) is not None


def find_added(connection: sa.Connection, study: StoredStudy) -> list[tuple[Part, int]]:
    """Trials that wait, or that run without a claim: the study has not made them, as it writes both at once."""
    parts = {f"{study.name}/{part}": part for part in study.parts}
    found = [(parts[name], number) for name, number in optuna_rows.open_trials(connection, list(parts))]
    return [
        (part, number)
        for part, number in found
        if not claims.has(connection, study_id=study.id, stage=part, trial=number)
    ]


def cancel_open(connection: sa.Connection, study: StoredStudy) -> None:
    """Ends the trials of a study that are not over, whoever runs them, and gives their claims back."""
    over = Cancelled()
    attributes = TrialAttributes(reason=over.reason, message=over.message)
    for row in claims.all_of(connection, study.id):
        if row["ended"] is None:
            name, part, number = f"{study.name}/{row['stage']}", row["stage"], row["trial"]
            claims.release(connection, study_id=study.id, stage=part, trial=number)
            optuna_rows.end_trial(connection, name, number, TrialState.FAIL, attributes)


def _state(outcome: Outcome) -> TrialState:
    if isinstance(outcome, Measured):
        return TrialState.COMPLETE
    return TrialState.PRUNED if isinstance(outcome, Slow | Infeasible) else TrialState.FAIL


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
    seen = {} if isinstance(outcome, Infeasible) else engine_attributes(figures_of(outcome).engine)
    return create_trial(
        state=_state(outcome),
        value=outcome.metric(metric) if isinstance(outcome, Measured) else None,
        params=dict(params),
        distributions=dict(distributions),
        user_attrs={**attrs, **seen, **_told(outcome, metric, run_seconds)},
        constraints={"fits": 1.0} if isinstance(outcome, Infeasible) else None,
    )


def refused_trial(
    reason: str,
    message: str,
    *,
    attrs: TrialAttributes,
    params: Mapping[str, Any],
    distributions: Mapping[str, BaseDistribution],
) -> FrozenTrial:
    """The trial of a candidate that dsopt refused before its launch."""
    return create_trial(
        state=TrialState.PRUNED,
        params=dict(params),
        distributions=dict(distributions),
        user_attrs={**attrs, **TrialAttributes(reason=reason, message=message[:_MESSAGE_LENGTH])},
        constraints={"fits": 1.0} if reason == "predicted_oom" else None,
    )


def trial_like(
    other: FrozenTrial,
    name: str,
    *,
    attrs: TrialAttributes,
    params: Mapping[str, Any],
    distributions: Mapping[str, BaseDistribution],
) -> FrozenTrial:
    """The trial of a candidate that has the outcome of another, which ran the very same configuration."""
    own = ("candidate", "round", "phase", "run_seconds", "taken_over", "sources")
    told = {key: value for key, value in other.user_attrs.items() if key not in own}
    return create_trial(
        state=other.state,
        value=other.value if other.state == TrialState.COMPLETE else None,
        params=dict(params),
        distributions=dict(distributions),
        user_attrs={**told, **attrs, **TrialAttributes(measured_as=name)},
        constraints={"fits": 1.0} if other.state == TrialState.PRUNED else None,
    )


def recorded_outcome(attempt: Row) -> Outcome | None:
    """The recorded outcome of a finished attempt; None if the attempt says nothing about its candidate."""
    if attempt["state"] in ("running", "cancelled") or attempt["reason"] == "lost":
        return None
    figures = json.loads(attempt["details"] or "{}")
    return from_json({**figures, **{key: attempt[key] for key in ("state", "reason", "message")}})


def _told(outcome: Outcome, metric: str, run_seconds: float | None) -> TrialAttributes:
    """The user attributes that describe an outcome."""
    told = _headline(figures_of(outcome)) if isinstance(outcome, Measured | Slow) else TrialAttributes()
    if isinstance(outcome, Slow):
        told["value_so_far"] = outcome.so_far.metric(metric)
        if outcome.bound is not None:
            told["value_bound"] = outcome.bound
    if not isinstance(outcome, Measured):
        told["reason"], told["message"] = outcome.reason, outcome.message[:_MESSAGE_LENGTH]
    elif outcome.ended:
        warmup = outcome.measurement.warmup_steps
        told["message"] = f"ended after {len(outcome.step_seconds)} steps, {warmup} of them warm-up: {outcome.ended}"
    if run_seconds is not None:
        told["run_seconds"] = run_seconds
    return told


def _headline(outcome: Measured) -> TrialAttributes:
    m = outcome.measurement
    headline: TrialAttributes = {
        "samples_per_second": m.samples_per_second,
        "step_milliseconds": m.step_seconds * 1000,
        "interval_percent": m.relative_half_width * 100,
        "measured_steps": m.measured_steps,
        "warmup_steps": m.warmup_steps,
        "step_deviation_percent": m.deviation * 100,
        "step_correlation": m.correlation,
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "peak_allocated_bytes": outcome.peak_allocated_bytes,
        "outside_bytes": outcome.outside_bytes,
        "activation_bytes": outcome.activation_bytes,
        "rows": outcome.rows,
        "elements": outcome.elements,
        "passes": outcome.passes,
        "step_rows": outcome.step_rows,
        "step_elements": outcome.step_elements,
        "is_evaluated": outcome.is_evaluated,
    }
    if outcome.weight_bytes is not None and outcome.gradient_bytes is not None and outcome.optimizer_bytes is not None:
        headline["weight_bytes"], headline["gradient_bytes"] = outcome.weight_bytes, outcome.gradient_bytes
        headline["optimizer_bytes"] = outcome.optimizer_bytes
    if outcome.flops_per_step is not None:
        headline["flops_per_step"] = outcome.flops_per_step
    troubles: TrialAttributes = {
        "alloc_retries": outcome.alloc_retries,
        "drifting": m.drifting,
        "read_ahead": outcome.read_ahead if outcome.read_ahead > m.warmup_steps else 0,
        "growth_percent": (outcome.growth - 1) * 100,
        "short_percent": outcome.gain_of_full_steps * 100,
        "pause_seconds": m.pause_seconds,
        "unsound": not is_sound(outcome),
        "evaluation_percent": outcome.evaluation_share * 100,
        "skipped_percent": outcome.skipped_share * 100,
        "nonfinite_loss_percent": outcome.nonfinite_share * 100,
        "skipped_in_warmup": sum(index < m.warmup_steps for index in outcome.skipped),
    }
    return cast(TrialAttributes, {**headline, **{name: value for name, value in troubles.items() if value}})
