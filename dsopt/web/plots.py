"""The charts of a study's page; each is None where there is nothing to draw, and the page says why."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from dsopt.report.numbers import number
from dsopt.report.rows import Row, bound_text
from dsopt.report.standing import Standing
from dsopt.search.facts import ModelFacts
from dsopt.search.grid import Grid
from dsopt.search.history import History
from dsopt.search.memory import MemoryModel
from dsopt.study.quantity import gib
from dsopt.study.spec import StudySpec
from dsopt.web.chart import Chart, Mark, stacked

_PARTS = ("forward", "backward", "step")
STEP_PARTS = "Time of a typical step (median) per sample"
_MOST = 300  # points of a chart: more only hide each other


def by_micro_batch(standing: Standing) -> Chart | None:
    """The metric against the micro-batch size, with what ran out of memory as crosses at the bottom."""
    marks: list[Mark] = []
    edges: dict[int, int] = {}
    for row in standing.rows[:_MOST]:
        if row.stage is None or row.micro_batch is None:
            continue
        kind = f"z{row.stage}"
        if row.searched is not None:
            half = row.searched * (row.searched_percent or 0.0) / 100
            says = f"{row.label}: {number(row.searched)} {standing.unit}"
            marks.append(
                Mark(
                    x=row.micro_batch,
                    y=row.searched,
                    low=row.searched - half,
                    high=row.searched + half,
                    kind=kind,
                    says=says,
                )
            )
        elif row.bound is not None:
            says = f"{row.label}: {bound_text(row, maximize=standing.maximize)} {standing.unit}, stopped early"
            marks.append(Mark(x=row.micro_batch, y=row.bound, kind=kind, says=says, is_hollow=True))
        elif row.reason in ("oom", "predicted_oom", "host_oom"):
            marks.append(Mark(x=row.micro_batch, y=0.0, kind=kind, says=f"{row.label}: {row.outcome}", is_cross=True))
            if row.reason == "oom":
                edges[row.stage] = min(row.micro_batch, edges.get(row.stage, row.micro_batch))
    if not any(not mark.is_cross for mark in marks):
        return None
    return Chart(
        title=f"{standing.metric} by micro-batch size and ZeRO stage",
        x_label="micro-batch size per GPU",
        y_label=standing.unit,
        marks=marks,
        edges=[(size, f"z{stage}") for stage, size in edges.items()],
        is_log=True,
    )


def key_of(sizes: Chart) -> str:
    """What the signs of the chart above mean, as far as it has them."""
    signs = {
        "× ran out of memory": any(mark.is_cross for mark in sizes.marks),
        "○ was stopped early: its bound": any(mark.is_hollow for mark in sizes.marks),
        "┆ the smallest size of a stage that ran out of memory": bool(sizes.edges),
    }
    return "; ".join(sign for sign, is_there in signs.items() if is_there)


def best_so_far(standing: Standing, history: History) -> Markup | None:
    """The best metric of the search after each of its runs."""
    ended = sorted((o for o in history.everything if o.round == 0 and o.launched and o.state != "running"),
                   key=lambda o: o.order)  # fmt: skip
    marks: list[Mark] = []
    line: list[tuple[float, float]] = []
    best: float | None = None
    labels = {row.name: row.label for row in standing.rows}
    for index, seen in enumerate(ended, start=1):
        if seen.value is not None:
            kind = f"z{seen.candidate.stage}" if seen.candidate else "own"
            says = f"{labels.get(seen.name, seen.name)}: {number(seen.value)} {standing.unit}"
            is_new = best is None or history.is_better(seen.value, best)
            if is_new or len(marks) < _MOST:
                marks.append(Mark(x=index, y=seen.value, kind=kind, says=says))
            if is_new:
                line += [(float(index), best)] if best is not None else []
                best = seen.value
                line.append((float(index), best))
    if best is not None:
        line.append((float(len(ended)), best))
    if len(marks) < 2:
        return None
    return Chart(
        title="The best of the search after each run",
        x_label="runs",
        y_label=standing.unit,
        marks=marks,
        lines=[(line, "best")],
    ).svg()


def memory(spec: StudySpec, facts: ModelFacts | None, history: History, standing: Standing) -> Markup | None:
    """What the fullest rank needed, as the model has it after all runs, against what was measured."""
    if facts is None or not facts.device_memory_bytes:
        return None
    told = [
        (o.candidate, o.name, o.facts)
        for o in history.observations
        if o.candidate is not None and o.facts is not None and o.facts.needed_bytes
    ]
    shown = told[:: math.ceil(len(told) / _MOST) or 1]
    if not shown:
        return None
    labels = {row.name: row.label for row in standing.rows}
    expected, _ = MemoryModel(spec, facts, history).predict(Grid.of([candidate for candidate, _, _ in shown]))
    # the model predicts what torch counts
    marks = [
        Mark(
            x=(float(predicted) + seen.outside_bytes) / 2**30,
            y=seen.needed_bytes / 2**30,
            kind=f"z{candidate.stage}",
            says=f"{labels.get(name, name)}: measured {gib(seen.needed_bytes)}",
        )
        for (candidate, name, seen), predicted in zip(shown, expected, strict=True)
    ]
    title = "Memory that the fullest rank needed, predicted and measured"
    return Chart(title=title, x_label="predicted, GiB", y_label="measured, GiB", marks=marks, is_square=True).svg()


def step_parts(rows: Sequence[Row], passes: Mapping[str, Mapping[str, Sequence[float]]]) -> Markup | None:
    """Where the time of a step goes, per sample of its global batch, for the best few.

    `passes`: by name, the seconds of each pass of each step.
    """
    bars = []
    for row in rows:
        seconds, batch = passes.get(row.name, {}), row.batch
        if not batch:
            continue
        means = [(part, _median(seconds[part]) * 1000 / batch) for part in _PARTS if seconds.get(part)]
        total = _median(seconds.get("all", ())) * 1000 / batch
        rest = total - sum(value for _, value in means)
        if means:
            bars.append((row.label, [*means, *([("rest", rest)] if rest > 0 else [])]))
    return stacked(f"{STEP_PARTS}, in its parts", bars, "ms") if bars else None


def _median(values: Sequence[float]) -> float:
    later = sorted(values[len(values) // 3 :])
    return later[len(later) // 2] if later else 0.0
