"""What came of a study, in one sentence and one factor."""

from dataclasses import dataclass

from dsopt.api.study import Study
from dsopt.report.compare import ComparisonTable
from dsopt.report.goal import superlative
from dsopt.report.numbers import number


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutcome:
    """What came of a study so far.

    Attributes:
        state: the study's, or `unconfirmed` if it is finished without a confirmed result.
        sentence: in words.
        best: the name of the best configuration; None if there is none.
        value: its metric, in the study's unit.
        factor: how many times as good as the user's own configuration it is; None if that is not known.
        interval: the 95 % interval of `factor`; None if it is not known.
        own_global_batch, best_global_batch: samples of a step; None if they are the same, or not known.
    """

    state: str
    sentence: str
    best: str | None = None
    value: float | None = None
    factor: float | None = None
    interval: tuple[float, float] | None = None
    own_global_batch: int | None = None
    best_global_batch: int | None = None


def outcome_of(study: Study) -> StudyOutcome:
    """What came of a study so far.

    Raises:
        DsoptError: it was deleted.
    """
    if study.is_comparison:
        return _of_comparison(study.table)
    summary = study.summary
    if summary.state == "stopped":
        return StudyOutcome(state="stopped", sentence=f"Stopped: {summary.note or 'no reason was given'}")
    found = summary.comparison
    if found is None:
        state = summary.state if summary.unconfirmed is None else "unconfirmed"
        return StudyOutcome(state=state, sentence=summary.sentence())
    batch = summary.batch_advice
    return StudyOutcome(
        state=summary.state, sentence=summary.sentence(), best=found.best, value=found.value, factor=found.speedup,
        interval=found.interval, own_global_batch=batch.own if batch else None,
        best_global_batch=batch.best if batch else None,
    )  # fmt: skip


def _of_comparison(table: ComparisonTable) -> StudyOutcome:
    if table.state != "finished":
        said = "The comparison was stopped." if table.state == "stopped" else "Not all rounds have run yet."
        return StudyOutcome(state=table.state, sentence=said)
    best = next((row for row in table.rows if row.name == table.fastest and row.value is not None), None)
    measured = sum(row.value is not None for row in table.rows)
    if best is None:
        said = "No configuration ran each time." if measured else "No configuration could be measured."
        return StudyOutcome(state=table.state, sentence=said)
    factor = best.factor
    what = (
        "the only configuration that ran each time"
        if len(table.whole) == 1 < measured
        else f"the {superlative(table.metric)}"
    )
    said = f"{best.name} is {what}: {number(best.value)} {table.unit}."
    if table.simulated is not None:
        said = f"Simulated: {said}"
    return StudyOutcome(
        state=table.state, sentence=said, best=best.name,
        value=best.value, factor=factor.factor if factor else None, interval=factor.interval if factor else None,
    )  # fmt: skip
