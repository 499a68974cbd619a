"""The rows of the documented table: what dsopt tried at each ZeRO stage, and the best of it."""

from dataclasses import dataclass

from dsopt.search.baseline_twin import baseline_test
from dsopt.search.history import BASELINE, History, Observation
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
    tried: list[Observation] = [*history.stages[stage]]
    baseline = history.find(BASELINE)
    is_own = baseline_test(spec, history)
    is_among = any(is_own(o.candidate) for o in tried)
    if baseline is not None and stage == history.own_stage and not is_among:
        tried.append(baseline)
    measured = [o for o in tried if o.state == "measured"]
    best = max(measured, key=history.score, default=None)
    return StageRow(
        tuning_space=f"z{stage}",
        num_experiments=sum(o.launched for o in tried),
        best_metric_val=best.value if best else None,
        best_exp_name=best.name if best else None,
        verdict=history.verdicts.get(stage, ""),
    )
