"""The rows of the documented table: what dsopt tried at each ZeRO stage, and the best of it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dsopt.report.aligned import markdown
from dsopt.report.numbers import number
from dsopt.search.baseline_twin import baseline_test
from dsopt.search.history import BASELINE, History
from dsopt.study.spec import StudySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """One stage of the summary table, in which `baseline` is the user's own configuration."""

    tuning_space: str
    num_experiments: int
    best_metric_val: float | None
    best_exp_name: str | None
    verdict: str


def stage_row(spec: StudySpec, stage: int, history: History) -> StageRow:
    """The row of a stage; it includes the user's own configuration unless that was tried there under another name."""
    tried = [history.measured_here(o) for o in history.stages[stage]]
    baseline = history.find(BASELINE)
    is_own = baseline_test(spec, history)
    is_among = any(is_own(o.candidate) for o in tried if o.imported is None)
    if baseline is not None and stage == history.own_stage and not is_among:
        tried.append(baseline)
    measured = [o for o in tried if o.state == "measured"]
    here = [o for o in measured if o.imported is None]
    best = max(here or measured, key=history.score, default=None)
    return StageRow(
        tuning_space=f"z{stage}",
        num_experiments=sum(o.launched for o in tried),
        best_metric_val=best.value if best else None,
        best_exp_name=best.name if best else None,
        verdict=history.verdicts.get(stage, ""),
    )


def stages_table(rows: Sequence[StageRow], *, maximize: bool, imported: Collection[str]) -> str:
    """The documented table, with the best of all stages in its last row.

    `imported` figures are marked, and stand only where nothing else was measured: they are not comparable.
    """

    def marked(name: str | None) -> str:
        return "-" if name is None else f"{name} (imported)" if name in imported else name

    lines = [
        (row.tuning_space, str(row.num_experiments), number(row.best_metric_val), marked(row.best_exp_name))
        for row in rows
    ]
    measured = [row for row in rows if row.best_metric_val is not None]
    ranked = [row for row in measured if row.best_exp_name not in imported] or measured
    best = (max if maximize else min)(ranked, key=lambda row: row.best_metric_val or 0.0, default=None)
    value, name = (best.best_metric_val, best.best_exp_name) if best else (None, None)
    lines.append(("global", str(sum(row.num_experiments for row in rows)), number(value), marked(name)))
    header = ("tuning_space", "num_experiments", "best_metric_val", "best_exp_name")
    return markdown(header, lines, (False, True, True, False))
