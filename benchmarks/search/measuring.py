"""What a run costs and says when it is started and measured as dsopt does it."""

from dataclasses import dataclass

from benchmarks.search.machine import Start, seconds_to_first_step
from dsopt.experiment.judge import FEWEST_STEPS
from dsopt.experiment.measure import Measurement, measure
from dsopt.experiment.race import Race
from dsopt.simulated.cluster import Run
from dsopt.study.spec import MeasurementBudget

# DeepSpeed's own window, before which nothing is measured and no run ends (`RunRules.floor`)
_FLOOR = (3, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measurement and the wall clock that the launch took, from asking for it until its end.

    `lost` says whether the run was stopped because it could not become the best any more.
    """

    measurement: Measurement
    cluster_seconds: float
    lost: bool = False


def measured(run: Run, start: Start, nodes: int, budget: MeasurementBudget, race: Race | None = None) -> Measured:
    """Measures a run that has memory enough until it is precise, its race is lost, or its budget is spent.

    Args:
        run: the launch.
        start: how its ranks are started.
        nodes: of the job.
        budget: precision wanted, most steps and most seconds after the first one.
        race: what it has to be able to reach.
    """
    assert run.oom is None
    times = run.step_seconds
    within = int((times[1:].cumsum() <= budget.max_seconds).sum()) + 1
    for count in range(_FLOOR[1] + 1, len(times) + 1):
        found = measure(times[:count], run.samples_per_step, budget.precision, min_warmup=_FLOOR[0])
        if found is None:
            continue
        is_over = count >= within and found.measured_steps >= FEWEST_STEPS
        is_over = is_over or found.is_precise(budget.precision) or count == min(len(times), budget.max_steps)
        lost = not is_over and race is not None and race.lost(found) is not None
        if is_over or lost:
            seconds = seconds_to_first_step(run, start, nodes) + float(times[:count].sum())
            return Measured(measurement=found, cluster_seconds=seconds, lost=lost)
    raise ValueError(f"{len(times)} steps are too few to measure anything")
