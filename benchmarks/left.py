"""How often what is said to be left of a study then comes, in runs and in time, on simulated development scenarios.

python -m benchmarks.left [STUDIES]
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.scenarios.families import DEVELOPMENT_SEEDS, draw
from benchmarks.search.dsopt_tuner import DsoptTuner
from benchmarks.search.machine import Simulated
from dsopt.report.left import Left, what_is_left
from dsopt.search.carry_out import next_run
from dsopt.search.history import Observation

_FIRST = 500  # the constants in `search/left.py` were chosen by the scenarios before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What was said when a run had ended, and what then came."""

    said: Left
    runs: int
    seconds: float

    @property
    def holds(self) -> tuple[bool, bool]:
        """Whether the runs, and the time, lay within what was said."""
        low, high = self.said.seconds or (0.0, 0.0)
        return self.said.fewest <= self.runs <= self.said.most, low <= self.seconds <= high


def moments_of(seed: int, *, fast: bool, noise: float) -> Iterator[Moment]:
    """Every moment of a study at which something is said."""
    study = DsoptTuner(fast=fast).study(Simulated(draw(seed, noise=noise)), seed)
    said: list[Left | None] = []
    took: list[float] = []
    while isinstance(run := next_run(study.spec, study), Observation):
        took.append(run.seconds or 0.0)
        said.append(what_is_left(study.spec, study.history))
    for number, each in enumerate(said[:-1], start=1):
        if each is not None:
            yield Moment(said=each, runs=len(took) - number, seconds=sum(took[number:]))


def main(studies: int = 40) -> None:
    """Prints the share of moments at which it held, and how wide it was, for small and large spaces."""
    for fast in (True, False):
        seeds = DEVELOPMENT_SEEDS[_FIRST : _FIRST + studies]
        found = [moment for seed in seeds for moment in moments_of(seed, fast=fast, noise=0.02)]
        runs, times = (sum(moment.holds[which] for moment in found) / len(found) for which in (0, 1))
        width = sum(moment.said.most - moment.said.fewest for moment in found) / len(found)
        space = "ZeRO stages and sizes" if fast else "all documented knobs"
        print(f"{space}: {len(found)} moments; runs as said {runs:.0%}, time {times:.0%}; {width:.1f} runs wide")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
