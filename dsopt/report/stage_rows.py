"""The rows of the documented table: what dsopt tried at each ZeRO stage, and the best of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from dsopt.report.aligned import markdown
from dsopt.report.numbers import number
from dsopt.search.baseline_twin import baseline_test
from dsopt.search.history import BASELINE, History
from dsopt.search.unconfirmed import failed_finalists
from dsopt.study.spec import StudySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """One stage of the summary table, in which `baseline` is the user's own configuration.

    `is_imported` tells of the best that no run here has measured it.
    """

    tuning_space: str
    num_experiments: int
    best_metric_val: float | None
    best_exp_name: str | None
    verdict: str
    is_imported: bool = False


def stage_row(spec: StudySpec, stage: int, history: History) -> StageRow:
    """The row of a stage; it includes the user's own configuration unless that was tried there under another name."""
    tried = [history.measured_here(o) for o in history.stages[stage]]
    baseline = history.find(BASELINE)
    is_own = baseline_test(spec, history)
    is_among = any(is_own(o.candidate) for o in tried if o.imported is None)
    if baseline is not None and stage == history.own_stage and not is_among:
        tried.append(baseline)
    failed = failed_finalists(history)
    measured = [o for o in tried if o.state == "measured" and not (o.imported and o.name in failed)]
    here = [o for o in measured if o.imported is None]
    best = max(here or measured, key=history.score, default=None)
    return StageRow(
        tuning_space=f"z{stage}",
        num_experiments=sum(o.launched for o in tried),
        best_metric_val=best.value if best else None,
        best_exp_name=best.name if best else None,
        verdict=history.verdicts.get(stage, ""),
        is_imported=best is not None and best.imported is not None,
    )


def stages_table(rows: Sequence[StageRow], *, maximize: bool) -> str:
    """The documented table, with the best of all stages in its last row.

    Imported figures are marked, and stand only where nothing else was measured: they are not comparable.
    """

    def marked(row: StageRow | None) -> str:
        name = row.best_exp_name if row is not None else None
        return "-" if row is None or name is None else f"{name} (imported)" if row.is_imported else name

    lines = [(row.tuning_space, str(row.num_experiments), number(row.best_metric_val), marked(row)) for row in rows]
    measured = [row for row in rows if row.best_metric_val is not None]
    ranked = [row for row in measured if not row.is_imported] or measured
    best = (max if maximize else min)(ranked, key=lambda row: row.best_metric_val or 0.0, default=None)
    value = best.best_metric_val if best else None
    lines.append(("global", str(sum(row.num_experiments for row in rows)), number(value), marked(best)))
    header = ("tuning_space", "num_experiments", "best_metric_val", "best_exp_name")
    return markdown(header, lines, (False, True, True, False))
