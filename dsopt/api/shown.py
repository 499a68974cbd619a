"""Everything about a study: every run with its outcome, and the result so far."""

from collections.abc import Sequence
from typing import Any

from dsopt.api.results import Run
from dsopt.protocol.text import significant
from dsopt.report.compare import ComparisonTable
from dsopt.report.readable import outcome_text, readable_name
from dsopt.report.space import space_lines
from dsopt.report.summary import Summary
from dsopt.search.history import Observation
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.command_secrets import shown
from dsopt.study.spec import StudySpec
from dsopt.worker.history import load_history

__all__ = ["imported", "shown_json", "shown_text", "space_lines"]


def imported(store: Store, study: StoredStudy) -> list[Observation]:
    """What was imported from DeepSpeed's autotuner, so did not run here."""
    return [o for o in load_history(store, study).observations if o.imported is not None]


def shown_json(
    runs: Sequence[Run], imported: Sequence[Observation], outcome: Summary | ComparisonTable
) -> dict[str, Any]:
    """A study as data: the result's own keys, `runs` and `imported_trials`."""
    others = [{"candidate": o.name, "state": o.state, "metric": o.value, "folder": o.imported} for o in imported]
    return {**outcome.to_json(), "runs": [run.to_json() for run in runs], "imported_trials": others}


def shown_text(
    spec: StudySpec,
    state: str,
    runs: Sequence[Run],
    imported: Sequence[Observation],
    outcome: Summary | ComparisonTable,
) -> str:
    """A study for people."""
    unit = spec.autotuning.unit
    lines = [f"Study '{spec.name}': {state}", f"Command: {shown(spec.launch)}", ""]
    for run in runs:
        lines += _run_lines(run, unit)
    for trial in imported:
        lines.append(f"  {trial.name:<36} {'imported':<10} {_result(trial.value, unit, trial.reason)}")
    if runs or imported:
        lines.append("")
    return "\n".join([*lines, outcome.text()])


def _result(value: float | None, unit: str, why_not: str | None) -> str:
    return outcome_text("", why_not) if value is None else f"{significant(value)} {unit}"


def _run_lines(run: Run, unit: str) -> list[str]:
    name, result = readable_name(run.candidate, None, run.round), _result(run.metric, unit, run.reason)
    lines = [f"  {name:<36} {run.state:<10} {result}"]
    if run.taken_over is not None:
        lines.append(f"      taken over from study '{run.taken_over}'")
    if run.why:
        lines.append(f"      chosen: {run.why}")
    if run.message:
        lines.append(f"      {run.message}")
    return lines
