"""What a run costs and says when it is started and measured as dsopt does it."""

from dataclasses import dataclass

from benchmarks.search.machine import DsConfig, Machine, Start, seconds_to_first_step
from benchmarks.search.records import Journal
from dsopt.experiment.judge import FEWEST_STEPS
from dsopt.experiment.measure import Measurement, measure
from dsopt.experiment.stake import Stake
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


def measured(run: Run, start: Start, nodes: int, budget: MeasurementBudget, stake: Stake | None = None) -> Measured:
    """Measures a run that has memory enough until more is not worth it, it has lost, or its budget is spent.

    Args:
        run: the launch.
        start: how its ranks are started.
        nodes: of the job.
        budget: precision wanted, most steps and most seconds after the first one.
        stake: what further steps are worth.
    """
    assert run.oom is None
    times = run.step_seconds
    within = int((times[1:].cumsum() <= budget.max_seconds).sum()) + 1
    for count in range(_FLOOR[1] + 1, len(times) + 1):
        found = measure(times[:count], run.samples_per_step, budget.precision, min_warmup=_FLOOR[0])
        if found is None:
            continue
        is_over = count >= within and found.measured_steps >= FEWEST_STEPS
        seconds = seconds_to_first_step(run, start, nodes) + float(times[:count].sum())
        is_over = is_over or found.is_precise(budget.precision) or count == min(len(times), budget.max_steps)
        is_over = is_over or (stake is not None and stake.is_enough(found, seconds))
        lost = not is_over and stake is not None and stake.lost(found) is not None
        if is_over or lost:
            return Measured(measurement=found, cluster_seconds=seconds, lost=lost)
    raise ValueError(f"{len(times)} steps are too few to measure anything")


def run_once(machine: Machine, config: DsConfig, launch: int, journal: Journal) -> float | None:
    """Launches a configuration as dsopt does, writes it down, and returns its samples per second; None if it is OOM."""
    nodes = machine.facts.nodes
    run = machine.run(config, launch)
    if run.oom is not None:
        journal.add(config, "search", "oom", None, seconds_to_first_step(run, "direct", nodes))
        return None
    result = measured(run, "direct", nodes, MeasurementBudget())
    value = result.measurement.samples_per_second
    journal.add(config, "search", "measured", value, result.cluster_seconds)
    return value
