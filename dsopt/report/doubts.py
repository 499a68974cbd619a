"""What a reader should know about the quality of a study's numbers."""

from collections.abc import Sequence
from typing import Final

from dsopt.experiment.remedy import remedy
from dsopt.search.history import History
from dsopt.search.run_quality import MOST_EVALUATION, MOST_SHORT, RunQuality

_IMPRECISE: Final = 25.0  # percent


def qualities_of(history: History) -> list[RunQuality]:
    """How good the numbers of every measured run are."""
    return [o.quality for o in history.everything if o.quality is not None]


def doubts_text(qualities: Sequence[RunQuality]) -> list[str]:
    """The doubts in words, one line per kind, and what helps."""
    drifting = [q.name for q in qualities if q.drifting]
    nonfinite = [q for q in qualities if q.nonfinite_loss_percent > 0]
    skipped = [q for q in qualities if q.skipped_percent > 0]
    lines = []
    if imprecise := [f"{q.name} (±{q.interval_percent:.0f} %)" for q in qualities if q.interval_percent > _IMPRECISE]:
        lines.append(
            f"WARNING: steps differed so much that their mean is hardly known: {', '.join(imprecise)}. A factor by "
            "such runs may be far off. Does something else use this machine? Tune again when it is quiet."
        )
    if drifting:
        lines.append(f"Step times kept drifting during the measurement: {', '.join(drifting)}.")
    if paused := [f"{q.name} ({q.pause_seconds:.1f} s)" for q in qualities if q.pause_seconds > 0]:
        lines.append(
            f"dsopt left out one step that took more than ten times as long as the others: {', '.join(paused)}."
        )
    if evaluating := [q for q in qualities if q.evaluation_percent > MOST_EVALUATION]:
        most = max(q.evaluation_percent for q in evaluating)
        lines.append(
            f"WARNING: up to {most:.0f} % of a run's time went to passes without gradients between some steps, which "
            "dsopt takes for an evaluation and leaves out. If they belong to training, as rollouts do, every figure "
            "here is too high: set 'measurement: {count_evaluation: true}' in a study file, and tune in a new study."
        )
    if short := [f"{q.name} ({q.short_percent:.0f} %)" for q in qualities if q.short_percent > MOST_SHORT]:
        lines.append(
            "WARNING: steps at the ends of short epochs were fed less, and the figures leave them out. By all steps, "
            f"the figures of these runs are too good by so much, and a factor by them may be: {', '.join(short)}. "
            "Drop such batches (drop_last=True), or tune with more data."
        )
    if nonfinite:
        runs = ", ".join(f"{q.name} ({q.nonfinite_loss_percent:.0f} % of its steps)" for q in nonfinite)
        lines.append(f"WARNING: the loss was NaN or infinite, so the model learns nothing: {runs}.")
    if skipped:
        runs = ", ".join(f"{q.name} ({q.skipped_percent:.0f} % of its steps)" for q in skipped)
        lines.append(
            f"WARNING: the optimizer skipped steps because their gradients were not finite; "
            f"dsopt leaves out their times: {runs}."
        )
    return lines + list(dict.fromkeys(remedy(q.dtype) for q in [*nonfinite, *skipped]))


def faults_of_machine(history: History) -> list[str]:
    """What counts as failed although its fault was the machine's, as runs said."""
    met = {o.name: o.message for o in history.everything if o.reason == "machine"}
    if not met:
        return []
    whose = "a run of 1 configuration" if len(met) == 1 else f"runs of {len(met)} configurations"
    return [
        f"{whose} met a fault of the machine, and count{'s' if len(met) == 1 else ''} as failed: the result does not "
        f"cover that. If it was chance, tune in a new study (another --name). The first: {next(iter(met.values()))}"
    ]
