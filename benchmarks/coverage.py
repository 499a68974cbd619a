"""How often a run's 95 % interval holds the true long-run mean of its step time, and how many steps that takes.

Step times are made up: first-order autoregressive noise, with or without stragglers, with or without a warm-up like
that of a first run on the CPU. They are judged by what judges real ones, `measure` and its stopping rule. Two tables:
after so many steps whatever was found, and ended as a run is, by the first step after which it is precise.

    python -m benchmarks.coverage [RUNS]
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsopt.experiment.measure import Measurement, measure

PRECISION = 0.02
MAX_STEPS = 300
FLOOR = (3, 5)  # first step that may count and last one that must be seen, as DeepSpeed's window
CORRELATIONS = (0.0, 0.3, 0.5, 0.6)
STRAGGLERS = (0.01, 1.5)  # share of steps, and how many times as long they take
SEED = 2  # the prior of `interval` was chosen with 1
WARM_UP = np.array([404, 252, 211, 203, 200, 167, 152, 166]) / 150  # of the steady step time


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of step times.

    Attributes:
        noise: coefficient of variation of a step.
        correlation: of successive steps.
        stragglers: whether one step in a hundred takes half as long again.
        warm_up: whether the first steps take longer.
    """

    noise: float = 0.02
    correlation: float = 0.0
    stragglers: bool = False
    warm_up: bool = False

    @property
    def mean(self) -> float:
        """The true long-run mean of a step."""
        share, factor = STRAGGLERS
        return 1 + share * (factor - 1) if self.stragglers else 1.0

    def step_times(self, generator: np.random.Generator, steps: int) -> NDArray[np.float64]:
        """So many step times, of about one second."""
        noise = np.empty(steps)
        state = generator.normal()
        for index, shock in enumerate(generator.normal(size=steps) * np.sqrt(1 - self.correlation**2)):
            noise[index] = state
            state = self.correlation * state + shock
        times = 1 + self.noise * noise
        if self.stragglers:
            times *= np.where(generator.random(steps) < STRAGGLERS[0], STRAGGLERS[1], 1.0)
        if self.warm_up:
            first = min(steps, len(WARM_UP))
            times[:first] *= WARM_UP[:first]
        return times


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many of the intervals hold the true mean, and how many steps the runs had on average."""

    share: float
    mean_steps: float


def after(case: Case, steps: int, runs: int, seed: int = 1) -> Coverage:
    """Runs of so many steps, whatever was found."""
    generator = np.random.default_rng(seed)
    return _coverage(case, (_measured(case.step_times(generator, steps)) for _ in range(runs)))


def when_precise(case: Case, runs: int, seed: int = 1) -> Coverage:
    """Runs that are ended by the first step after which they are precise, as a study's are."""
    generator = np.random.default_rng(seed)
    return _coverage(case, (_until_precise(case.step_times(generator, MAX_STEPS)) for _ in range(runs)))


def _until_precise(times: NDArray[np.float64]) -> Measurement:
    for steps in range(FLOOR[1] + 1, len(times)):
        measurement = measure(times[:steps], 1, PRECISION, min_warmup=FLOOR[0])
        if measurement is not None and measurement.is_precise(PRECISION):
            return measurement
    return _measured(times)


def _measured(times: NDArray[np.float64]) -> Measurement:
    measurement = measure(times, 1, PRECISION, min_warmup=FLOOR[0])
    assert measurement is not None
    return measurement


def _coverage(case: Case, measurements: Iterator[Measurement]) -> Coverage:
    seen = [
        (abs(m.step_seconds - case.mean) <= m.half_width_seconds, m.warmup_steps + m.measured_steps)
        for m in measurements
    ]
    held, steps = np.mean(np.array(seen, dtype=float), axis=0)
    return Coverage(share=float(held), mean_steps=float(steps))


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    kinds = {"steady": {}, "stragglers": {"stragglers": True}, "warm-up": {"warm_up": True}}
    shares: list[float] = []

    def line(*cells: str) -> None:
        print(f"| {' | '.join(cells)} |")

    def cells(results: Sequence[Coverage]) -> list[str]:
        shares.extend(result.share for result in results)
        return [f"{100 * result.share:.1f} % ({result.mean_steps:.0f})" for result in results]

    header = [f"correlation {correlation:g}" for correlation in CORRELATIONS]
    rule = ["---:"] * len(CORRELATIONS)
    line("steps", "kind", *header)
    line("---:", "---", *rule)
    for steps in (10, 20, 60, MAX_STEPS):
        for kind, options in kinds.items():
            results = [after(Case(correlation=c, **options), steps, 4 * runs, SEED) for c in CORRELATIONS]
            line(str(steps), kind, *cells(results))
    print()
    line("noise", "kind", *header)
    line("---:", "---", *rule)
    for noise in (0.02, 0.05, 0.10):
        for kind, options in kinds.items():
            results = [when_precise(Case(noise=noise, correlation=c, **options), runs, SEED) for c in CORRELATIONS]
            line(f"{100 * noise:.0f} %", kind, *cells(results))
    least, mean, most = (100 * float(figure(shares)) for figure in (min, np.mean, max))
    print(f"\nAll cells together {mean:.1f} %; single ones {least:.1f} to {most:.1f} %.")


if __name__ == "__main__":
    main()
