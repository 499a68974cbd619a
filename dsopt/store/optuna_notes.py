"""Notes on trials and studies, where optuna-dashboard keeps and shows its own (`optuna_dashboard/_note.py`)."""

from typing import Final

import optuna

from dsopt.experiment.outcome import Measured, Outcome, Slow, figures_of
from dsopt.protocol.text import significant
from dsopt.study.markdown import plain_markdown
from dsopt.study.part import Part
from dsopt.study.quantity import gib
from dsopt.study.spec import StudySpec

_LONGEST: Final = 600  # characters: whoever lists Optuna's studies reads all notes of all of them


def trial_note(outcome: Outcome, metric: str, unit: str, run_seconds: float | None) -> str:
    """What came of a trial, in words."""
    took = "" if run_seconds is None else f" The run took {run_seconds:.0f} s."
    if not isinstance(outcome, Measured | Slow):
        return f"**{outcome.state}, {outcome.reason}.** {plain_markdown(outcome.message[:_LONGEST])}" + took
    seen = figures_of(outcome)
    m = seen.measurement
    told = (
        f"**{significant(seen.metric(metric))} {unit}** (±{100 * m.relative_half_width:.1f} %), from "
        f"{m.measured_steps} steps after {m.warmup_steps} of warm-up. A step took {1000 * m.step_seconds:.4g} ms; the "
        f"fullest rank needed {gib(seen.needed_bytes)} of memory."
    )
    slow = f" {plain_markdown(outcome.message[:_LONGEST])}" if isinstance(outcome, Slow) else ""
    return f"{told}{slow}{took}"


def describe(made: optuna.Study, spec: StudySpec, part: Part) -> None:
    """Says on Optuna's study of a part what it is for, and where the rest is."""
    made.set_user_attr("about", f"dsopt study '{spec.name}': {part.about}")
    tuning, name = spec.autotuning, spec.name
    empty = (
        "These runs have no parameters, so panels about parameters stay empty."
        if part.stage is None
        else "Importance, contours and the like stay empty until several values of a parameter are measured."
    )
    note = (
        f"This part of the dsopt study **{name}** has {part.about}. Values are {tuning.metric} in {tuning.unit}. "
        "A pruned trial did not fit, could not win, or was refused: its `reason` and `message` say why. For the "
        f"result and the charts: `dsopt dashboard`, `dsopt study show {name}`, `dsopt report {name}`. {empty}"
    )
    for key, value in note_attributes(note).items():
        made._storage.set_study_system_attr(made._study_id, key, value)


def note_attributes(note: str, trial_id: int | None = None) -> dict[str, int | str]:
    """The system attributes of a study that hold a note on it, or on one of its trials."""
    place = "dashboard" if trial_id is None else f"dashboard:{trial_id}"
    return {f"{place}:note_ver": 1, f"{place}:note_str:0": note}
