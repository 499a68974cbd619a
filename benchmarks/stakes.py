"""When a run ends, by how fast it really is: how often because it cannot win, and after how many steps.

Step times are made up as for `benchmarks.coverage`, with a warm-up and correlated noise; each launch, that of the best
too, differs by 1 % (standard deviation) from its configuration's true mean. A run takes ten steps' time to start, and
is looked at after every step. Nothing is believed of it beforehand but what the first run of a study says of the noise.

    python -m benchmarks.stakes [RUNS]
"""

import math
import sys

import numpy as np

from benchmarks.coverage import FLOOR, MAX_STEPS, PRECISION, Case
from dsopt.experiment.measure import measure
from dsopt.experiment.stake import Stake
from dsopt.study.launch_noise import UNEXPLAINED, USUAL
from dsopt.study.step_noise import StepNoise

LAUNCH_DEVIATION = 0.01
SPEEDS = (1.0, 0.97, 0.95, 0.9, 0.8)  # of the best's throughput
SEED = 2


START_SECONDS = 10.0  # a step takes one
WORTH = 0.0025 / 40  # of a second: what a run must be worth, by what it takes


def ended(case: Case, speed: float, generator: np.random.Generator) -> tuple[bool, int]:
    """Whether a run of a configuration was stopped because it had lost, and after how many steps it ended."""
    best, own = 1 + LAUNCH_DEVIATION * generator.normal(size=2)
    times = case.step_times(generator, MAX_STEPS) / (speed * own)
    stake = Stake(
        metric="throughput", mean=0.0, variance=math.inf, best=math.log(best), best_value=best, launch=USUAL**2,
        spread=USUAL**2 + UNEXPLAINED**2, per_second=WORTH,
        noise=StepNoise(deviation=case.noise, correlation=case.correlation, steps=40),
    )  # fmt: skip
    for steps in range(FLOOR[1] + 1, MAX_STEPS + 1):
        measurement = measure(times[:steps], 1, PRECISION, min_warmup=FLOOR[0])
        if measurement is None:
            continue
        if measurement.is_precise(PRECISION) or stake.is_enough(measurement, START_SECONDS + times[:steps].sum()):
            return False, steps
        if stake.lost(measurement) is not None:
            return True, steps
    return False, MAX_STEPS


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print("| noise | true throughput against the best | stopped | steps |")
    print("|---:|---:|---:|---:|")
    for noise in (0.02, 0.05, 0.10):
        case = Case(noise=noise, correlation=0.3, warm_up=True)
        for speed in SPEEDS:
            generator = np.random.default_rng(SEED)
            stopped, steps = np.mean([ended(case, speed, generator) for _ in range(runs)], axis=0)
            print(f"| {100 * noise:.0f} % | {speed:g} | {100 * stopped:.0f} % | {steps:.0f} |", flush=True)


if __name__ == "__main__":
    main()
