"""Judges a run from its events alone: measured, slow, refused or failed, or nothing yet."""

from dataclasses import dataclass, replace
from typing import Final

from dsopt.experiment.batches import without_compilation
from dsopt.experiment.contradiction import contradiction
from dsopt.experiment.evaluation import counts_evaluation, has_seen_enough, never_evaluated, step_seconds
from dsopt.experiment.failures import ended, host_oom, only_lacks_a_save, problem, stage_reached
from dsopt.experiment.health import has_settled, never_trains, unsound
from dsopt.experiment.measure import Measurement, measure
from dsopt.experiment.outcome import Failed, Measured, Outcome, Slow
from dsopt.experiment.plain import plain_contradiction
from dsopt.experiment.read_ahead import read_ahead
from dsopt.experiment.rules import RunRules
from dsopt.experiment.seen import Seen
from dsopt.launch.launch import Launch

FEWEST_STEPS: Final = 3  # after warm-up, however long they take: with fewer there is no interval
_MIN_STEPS_AT_END = 5  # after warm-up, of a script that ends by itself
_MISSED: Final = "the script missed a checkpoint, which no experiment saves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The moment of a look at a run.

    Attributes:
        seconds: since its launch.
        spent_seconds: from its launch to the end of the last step.
        training_seconds: since its first step ended; 0 before.
        exit_code: the launcher's, negative for a signal; None while it runs.
        last_output: the end of its log; empty while it runs and has raised nothing.
        host_kills: processes that the kernel has killed since its launch, because the host's memory was full.
    """

    seconds: float
    spent_seconds: float = 0.0
    training_seconds: float = 0.0
    exit_code: int | None = None
    last_output: str = ""
    host_kills: int = 0


def measurement_of(seen: Seen, rules: RunRules) -> Measurement | None:
    """What the steps so far support, if anything."""
    if not seen.steps:
        return None
    seconds = step_seconds(seen.steps, counts=counts_evaluation(seen.steps, rules))
    for index, took in without_compilation(seen.steps).items():
        seconds[index] = took
    samples = seen.steps[-1].samples
    precision, skipped = rules.measurement.precision, seen.left_out()
    if rules.window is not None:
        if len(seconds) <= rules.window[1]:
            return None
        return measure(seconds, samples, precision, rules.window, skipped=skipped)
    return measure(seconds, samples, precision, min_warmup=_least_warmup(seen, rules), skipped=skipped)


def _least_warmup(seen: Seen, rules: RunRules) -> int:
    """Steps that are warm-up in any case: among them those that were fed with what was read while the script began.

    Where a script or the budget ends earlier, the last few steps count all the same.
    """
    gas = seen.engine.gas if seen.engine else 1
    return max(rules.floor[0], min(max(-(-seen.ready // gas), read_ahead(seen)), len(seen.steps) - _MIN_STEPS_AT_END))


def judge(
    seen: Seen, rules: RunRules, measurement: Measurement | None, moment: Moment, launch: Launch
) -> Outcome | None:
    """The outcome of a run, once there is one; None: it continues.

    Args:
        seen: what its events have said.
        rules: when that is enough.
        measurement: what new steps support; None if there are no new ones since the last time, or too few.
        moment: the moment of this look.
        launch: names command and logs in messages.
    """
    has_enough = measurement is not None and measurement.measured_steps >= _MIN_STEPS_AT_END
    lacks_a_save = bool(seen.problems) and has_enough and only_lacks_a_save(seen, launch)
    if seen.problems and not lacks_a_save:
        died = host_oom(seen, moment.host_kills, launch)
        return died or problem(seen, moment.last_output, rules, launch)
    is_over = lacks_a_save or moment.exit_code is not None
    refusal = plain_contradiction(seen, launch) or contradiction(seen, rules, launch.command)
    refusal = refusal or never_trains(seen, rules, is_over=is_over)
    if refusal is not None:
        return refusal
    if measurement is not None and seen.engine is not None:
        spent = _budget_spent(seen, rules, measurement, moment)
        why_enough = _why_enough(rules, measurement, moment)
        enough = len(seen.steps) > rules.floor[1] and has_seen_enough(seen.steps, rules)
        ended_well = lacks_a_save or (moment.exit_code is not None and seen.ended and has_enough)
        if why_enough is not None and enough and has_settled(figures := _figures(seen, rules, measurement)):
            return _checked(replace(figures, ended=why_enough), seen, rules)
        if spent or ended_well:
            figures = _figures(seen, rules, measurement)
            why_ended = "its budget was spent" if spent else _MISSED if lacks_a_save else "the script ended"
            return _checked(replace(figures, ended=why_ended), seen, rules)
        stake = rules.stake
        why = stake.lost(measurement) if stake is not None and rules.window is None and enough else None
        if stake is not None and stake.best_value is not None and why is not None:
            so_far, bound = _figures(seen, rules, measurement), stake.reachable(measurement)
            return Slow(so_far=so_far, best=stake.best_value, bound=bound, message=why)
    if moment.exit_code is not None:
        died = host_oom(seen, moment.host_kills, launch) if moment.exit_code else None
        return died or ended(seen, moment.exit_code, moment.last_output, launch)
    if moment.seconds > rules.timeout_seconds:
        return Failed(
            reason="timeout",
            message=f"{stage_reached(seen, launch)} when timeout_seconds ({rules.timeout_seconds:g} s) had passed. "
            f"Raise timeout_seconds, or check whether the script hangs. Log: {launch.run_dir.stderr}",
        )
    return None


def _figures(seen: Seen, rules: RunRules, measurement: Measurement) -> Measured:
    """All that a run shows: not made at every step, since the worker shares its cores with the ranks."""
    figures = seen.measured(measurement, counts_evaluation=counts_evaluation(seen.steps, rules))
    return replace(figures, read_ahead=read_ahead(seen))


def _why_enough(rules: RunRules, measurement: Measurement, moment: Moment) -> str | None:
    """Why no more steps are needed; None if they are: the user's window counts whatever they show."""
    if rules.window is not None:
        return None
    if measurement.is_precise(rules.measurement.precision):
        return f"its mean was precise to {100 * rules.measurement.precision:g} %"
    if rules.stake is not None and rules.stake.is_enough(measurement, moment.spent_seconds):
        return "more steps were not worth their time"
    return None


def _checked(figures: Measured, seen: Seen, rules: RunRules) -> Outcome:
    """These figures, if they can be believed."""
    return _lacks(seen, rules) or unsound(figures, rules) or never_evaluated(seen.steps, rules) or figures


def _lacks(seen: Seen, rules: RunRules) -> Failed | None:
    """Says if a run showed nothing of what the metric needs."""
    if rules.needs_flops and not seen.flops:
        said = (
            "dsopt counted no floating-point operations, as in a script that compiles its model; choose another metric"
        )
        return Failed(reason="no_metrics", message=said)
    if rules.needs_pass and not any(seen.passes()[rules.needs_pass]):
        said = f"dsopt sees no {rules.needs_pass} calls of the script's engine; choose another metric"
        return Failed(reason="no_metrics", message=said)
    return None


def _budget_spent(seen: Seen, rules: RunRules, measurement: Measurement, moment: Moment) -> bool:
    """Whether a run has used up its budget; if a step takes minutes, the budget of seconds waits for a few steps."""
    if rules.window is not None:
        return len(seen.steps) > rules.window[1]
    budget = rules.measurement
    is_over = moment.training_seconds >= budget.max_seconds
    return len(seen.steps) >= budget.max_steps or (is_over and measurement.measured_steps >= FEWEST_STEPS)
