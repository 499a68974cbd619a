"""How often a run is stopped because it cannot win, and how many steps that saves, by how fast it really is.

Step times are made up as for `benchmarks.coverage`, with a warm-up and correlated noise; each launch, that of the best
too, differs by 1 % (standard deviation) from its configuration's true mean. A run is looked at after every step.

    python -m benchmarks.races [RUNS]
"""

import sys

import numpy as np

from benchmarks.coverage import FLOOR, MAX_STEPS, PRECISION, Case
from dsopt.experiment.measure import measure
from dsopt.experiment.race import Race

LAUNCH_DEVIATION = 0.01
SPEEDS = (1.0, 0.97, 0.95, 0.9, 0.8)  # of the best's throughput
SEED = 2


def race(case: Case, speed: float, generator: np.random.Generator) -> tuple[bool, int, int]:
    """Whether a run of a configuration was stopped, after how many steps it ended, and how many it takes unraced."""
    best, own = 1 + LAUNCH_DEVIATION * generator.normal(size=2)
    times = case.step_times(generator, MAX_STEPS) / (speed * own)
    against = Race(metric="throughput", best=best)
    stopped_after = None
    for steps in range(FLOOR[1] + 1, MAX_STEPS + 1):
        measurement = measure(times[:steps], 1, PRECISION, min_warmup=FLOOR[0])
        if measurement is None:
            continue
        if measurement.is_precise(PRECISION):
            break
        if stopped_after is None and against.lost(measurement) is not None:
            stopped_after = steps
    return stopped_after is not None, stopped_after or steps, steps


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print("| noise | true throughput against the best | stopped | steps, raced | steps, to the end |")
    print("|---:|---:|---:|---:|---:|")
    for noise in (0.02, 0.05, 0.10):
        case = Case(noise=noise, correlation=0.3, warm_up=True)
        for speed in SPEEDS:
            generator = np.random.default_rng(SEED)
            stopped, raced, whole = np.mean([race(case, speed, generator) for _ in range(runs)], axis=0)
            print(
                f"| {100 * noise:.0f} % | {speed:g} | {100 * stopped:.0f} % | {raced:.0f} | {whole:.0f} |", flush=True
            )


if __name__ == "__main__":
    main()
