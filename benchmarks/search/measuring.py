"""What a run costs and says when it is started and measured as dsopt does it."""

from dataclasses import dataclass

from benchmarks.search.machine import Start, seconds_to_first_step
from dsopt.experiment.measure import Measurement, measure
from dsopt.experiment.run import FEWEST_STEPS
from dsopt.simulated.cluster import Run
from dsopt.study.spec import MeasurementBudget

# DeepSpeed's own window, before which nothing is measured and no run ends (`RunRules.floor`)
_FLOOR = (3, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measurement and the wall clock that the launch took, from asking for it until its end."""

    measurement: Measurement
    cluster_seconds: float


def measured(run: Run, start: Start, nodes: int, budget: MeasurementBudget) -> Measured:
    """Measures a run that has memory enough until it is precise, or its budget of steps or seconds is spent.

    Args:
        run: the launch.
        start: how its ranks are started.
        nodes: of the job.
        budget: precision wanted, most steps and most seconds after the first one.
    """
    assert run.oom is None
    times = run.step_seconds
    within = int((times[1:].cumsum() <= budget.max_seconds).sum()) + 1
    for count in range(_FLOOR[1] + 1, len(times) + 1):
        found = measure(times[:count], run.samples_per_step, budget.precision, min_warmup=_FLOOR[0])
        if found is None:
            continue
        is_over = count >= within and found.measured_steps >= FEWEST_STEPS
        if found.is_precise(budget.precision) or is_over or count == min(len(times), budget.max_steps):
            seconds = seconds_to_first_step(run, start, nodes) + float(times[:count].sum())
            return Measured(measurement=found, cluster_seconds=seconds)
    raise ValueError(f"{len(times)} steps are too few to measure anything")
