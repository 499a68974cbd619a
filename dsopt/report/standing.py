"""Where a study stands: how far, how good, what goes on now, and what was tried, best first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from dsopt.report.answer import headline
from dsopt.report.batch_size import batches_text
from dsopt.report.cost import money
from dsopt.report.durations import short_duration
from dsopt.report.first_run import memory_lines
from dsopt.report.goal import superlative, times_text
from dsopt.report.left import ON_CLUSTER, cluster_seconds, what_is_left
from dsopt.report.numbers import number
from dsopt.report.readable import readable_name
from dsopt.report.rows import Row, best_row, factor_of, rows_of
from dsopt.report.summary import Summary
from dsopt.search.history import History
from dsopt.study.spec import StudySpec

_ROUGH: Final = 5.0  # percent
OVER: Final = ("finished", "stopped")  # states in which nothing goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """A run that goes on: which, on which node, for how many seconds, and whether its worker has fallen silent."""

    name: str
    round: int
    node: str
    seconds: float
    is_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a study stands.

    Attributes:
        study, state, metric, unit, maximize: what it is about.
        simulated: what a dry run simulates; None if runs are real.
        good: how good the best is so far, or the result, in a sentence.
        far: how far it is, in words.
        now: what goes on, or what to do to go on, a line each.
        factor: how many times as fast as the user's own configuration the best is so far; None in a finished study, and
            if the best is the user's own, or imported, or one of the two has no figure.
        batch: what to know of the global batch where there is a factor, if it is not the user's; else empty.
        stages: why each closed stage is closed.
        rows: what was tried, best first.
        advice: what else to do.
        doubts: what to know before one believes the result.
    """

    study: str
    state: str
    metric: str
    unit: str
    maximize: bool
    simulated: str | None
    good: str
    far: str
    now: Sequence[str]
    factor: float | None
    batch: str
    stages: Sequence[tuple[int, str]]
    rows: Sequence[Row]
    advice: Sequence[str]
    doubts: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """All of it as data."""
        return asdict(self)


def standing_of(
    spec: StudySpec, history: History, summary: Summary, running: Sequence[Now], *, scaled: bool = False
) -> Standing:
    """Where a study stands.

    Args:
        spec, history, summary: the study, its runs, and what they say.
        running: what goes on now.
        scaled: whether the learning rate in its result files follows the batch.
    """
    rows = rows_of(spec, history, summary.comparison.best if summary.comparison else None)
    if summary.comparison is None and summary.state != "finished":
        best = best_row(rows)
        rows = [replace(row, is_best=True) if row is best and not row.is_own else row for row in rows]
    labels = {row.name: row.label for row in rows}
    best, own = best_row(rows), next((row for row in rows if row.is_own), None)
    factor = None if summary.state == "finished" else factor_of(best, own, maximize=summary.maximize)
    batch = "" if factor is None else _batches(best, own)
    return Standing(
        study=spec.name,
        state=summary.state,
        metric=summary.metric,
        unit=summary.unit,
        maximize=summary.maximize,
        simulated=summary.simulated,
        good=_good(summary, rows, factor, batch),
        far=_far(spec, history, summary),
        now=_now(summary, running, labels),
        factor=factor,
        batch=batch,
        stages=[(int(row.tuning_space.removeprefix("z")), row.verdict) for row in summary.stages if row.verdict],
        rows=rows,
        advice=[
            *summary.advice_lines(scaled=scaled),
            *memory_lines(spec, history, is_over=summary.state in OVER, told=summary.note or ""),
        ],
        doubts=summary.doubt_lines(),
    )


def _good(summary: Summary, rows: Sequence[Row], factor: float | None, batch: str) -> str:
    if summary.comparison is not None:
        return headline(summary)
    if summary.unconfirmed is not None:
        failed = len(summary.unconfirmed.failures)
        runs = "1 run" if failed == 1 else f"{failed} runs"
        return f"Not confirmed: {runs} failed when the best of the search were measured again."
    if summary.state == "finished":
        return summary.sentence().partition("\n")[0]
    own = next((row for row in rows if row.is_own), None)
    best = best_row(rows)
    if best is None:
        return "Nothing was measured yet."
    if best.is_own:
        if any(row.state in ("measured", "slow") and not row.is_own for row in rows):
            return f"Your own configuration is the {superlative(summary.metric)} so far."
        return "Nothing but your own configuration was measured yet."
    if best.estimate is not None:
        how = "by all its runs"
    else:
        how = best.origin if best.origin and best.is_imported else f"by one run{_roughly(best, own)}"
    told = f"Best so far: {best.label}, {number(best.value)} {summary.unit}"
    if factor is None:
        return f"{told} ({how})."
    return f"{told}, {times_text(summary.metric, factor, 'yours')} ({how}). {batch}".rstrip()


def _batches(best: Row | None, own: Row | None) -> str:
    """The global batch of the best so far beside the user's own, in words; empty if it is the same or not known."""
    if best is None or own is None or own.batch is None or best.batch in (None, own.batch):
        return ""
    return batches_text(best.batch, own.batch)


def _roughly(best: Row, own: Row | None) -> str:
    """By how many per cent a factor of two single runs may be off, where that is much."""
    percents = [row.searched_percent for row in (best, own) if row is not None and row.searched_percent is not None]
    off = math.hypot(*percents)
    return f", ±{off:.0f} %" if off > _ROUGH else ""


def _far(spec: StudySpec, history: History, summary: Summary) -> str:
    over = [o for o in history.everything if o.is_spent and o.state != "running"]
    again = sum(o.round > 0 for o in over)
    parts = [f"{len(over)} run{'s' * (len(over) != 1)}"]
    if again:
        parts.append(f"{again} of them {'a repeat' if again == 1 else 'repeats'}")
    if spec.simulation is not None and over:
        parts.append(f"{short_duration(cluster_seconds(spec, history))} {ON_CLUSTER}")
    elif summary.worked_seconds is not None:
        parts.append(f"{short_duration(summary.worked_seconds)} of runs")
    if summary.cost is not None and summary.simulated is None:
        parts.append(f"cost {money(summary.cost.study)}")
    left = what_is_left(spec, history) if summary.state not in OVER else None
    return "; ".join([", ".join(parts), *([left.text()] if left else [])])


def _now(summary: Summary, running: Sequence[Now], labels: dict[str, str]) -> list[str]:
    name = summary.study
    if summary.state == "finished":
        again = summary.unconfirmed is not None
        return [f"Measure again with: dsopt study resume {name}, then dsopt worker {name}"] if again else []
    if running:
        is_left = all(run.is_silent for run in running)
        left = [f"Its worker does not answer. Any worker goes on from here: dsopt worker {name}"] if is_left else []
        return [*running_lines(running, labels), *left]
    if summary.state == "stopped":
        return _stopped(summary.note or "", f"dsopt study resume {name}")
    return [f"No run is going on. Go on with: dsopt worker {name}"]


def _stopped(note: str, resume: str) -> list[str]:
    """Why a study stopped, and how to go on: what ends it of itself may have a list of what would help."""
    why, *more = note.splitlines() or [""]
    if not more:
        return [f"Stopped{f': {why}' if why else ''}".rstrip(".") + f". Go on with: {resume}"]
    helps = "Allow one of these in a new study, or try" if more[-1].startswith("- ") else "Try"
    return [f"Stopped: {why}", *more, f"{helps} the same again with: {resume}"]


def running_lines(running: Sequence[Now], labels: Mapping[str, str]) -> list[str]:
    """What goes on, a line each; `labels` for people, by canonical name."""
    return [
        f"Running: {labels.get(run.name, readable_name(run.name, None))}"
        f"{f' · round {run.round}' if run.round else ''}, on {run.node}, for {short_duration(run.seconds)}"
        f"{'; its worker is silent' if run.is_silent else ''}"
        for run in running
    ]
