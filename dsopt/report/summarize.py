"""Finds all that the summary of a study tells."""

from collections.abc import Sequence
from dataclasses import replace

from dsopt.report.batch_size import batch_advice
from dsopt.report.cost import cost_of
from dsopt.report.doubts import faults_of_machine
from dsopt.report.dry_run import simulated
from dsopt.report.failures import has_alternatives
from dsopt.report.goal import training_speed
from dsopt.report.headroom import headroom_of
from dsopt.report.named import crashed, labels_of, only_imported, taken_over
from dsopt.report.nodes import slow_nodes
from dsopt.report.optimal import optimal_candidate
from dsopt.report.own_run import first_values, unknown_batch
from dsopt.report.partitioned import partitioned
from dsopt.report.resumed import resumed
from dsopt.report.samples import samples_text
from dsopt.report.space import wider
from dsopt.report.stage_rows import stage_row
from dsopt.report.summary import Summary
from dsopt.report.unlike_runs import unlike_runs
from dsopt.search.history import BASELINE, History
from dsopt.search.how_many import is_alone
from dsopt.search.ruled_out import refusals
from dsopt.search.run_quality import RunQuality
from dsopt.search.standing import compare
from dsopt.search.unconfirmed import left_out, unconfirmed
from dsopt.study.spec import StudySpec


def summarize(
    spec: StudySpec,
    history: History,
    qualities: Sequence[RunQuality],
    *,
    state: str,
    note: str | None,
    duration_seconds: float | None,
    worked_seconds: float | None = None,
    launches: Sequence[tuple[str, float]] = (),
) -> Summary:
    """Builds the summary of a study; `launches`: of each, what it ran, and for how many seconds it held its devices."""
    baseline, comparison = history.find(BASELINE), compare(spec, history) if state == "finished" else None
    found = Summary(
        study=spec.name,
        state=state,
        metric=spec.autotuning.metric,
        unit=spec.autotuning.unit,
        maximize=spec.autotuning.maximize,
        simulated=simulated(spec),
        note=note if state == "stopped" else None,
        baseline=baseline.value if baseline else None,
        baseline_message=baseline.message if baseline else "",
        model=history.facts_for(spec),
        stages=[stage_row(spec, stage, history) for stage in spec.stages],
        imported=only_imported(spec, history),
        taken_over=taken_over(history),
        comparison=comparison,
        unconfirmed=unconfirmed(history) if state == "finished" else None,
        only=wider(spec) if is_alone(spec, history) else None,
        crashed=crashed(history),
        left_out=[(o.name, o.round, o.message) for o in left_out(history)],
        foreign=[f"trial {t.trial} of {spec.name}/{t.part} has {t.why}; it is left out." for t in history.left_out],
        alternatives=has_alternatives(spec, history),
        doubts=[q for q in qualities if q.is_doubtful],
        unlike_runs=unlike_runs(spec, history),
        slow_nodes=slow_nodes(spec, history),
        fixed_sizes=" ".join({o.reason: o.message for o in refusals(history)}.values()),
        outside=history.wrote_outside,
        cost=cost_of(spec, history, comparison, launches),
        duration_seconds=duration_seconds,
        worked_seconds=worked_seconds,
        first_values=first_values(spec),
        unknown_batch=unknown_batch(spec, history, None),
        speed=training_speed(spec, history, comparison),
    )
    found = replace(found, labels=labels_of(history, found.names), faults=faults_of_machine(history))
    return found if comparison is None else _with_best(spec, history, found, comparison.best)


def _with_best(spec: StudySpec, history: History, found: Summary, name: str) -> Summary:
    """The same with what is to know of the best, whose name is given."""
    best = optimal_candidate(spec, history)
    return replace(
        found,
        headroom=headroom_of(history, name),
        samples=samples_text(history, name),
        batch_advice=batch_advice(spec, history, best),
        unknown_batch=unknown_batch(spec, history, best),
        checkpoints=[*resumed(spec, history, best), *partitioned(spec, history, best)],
    )
