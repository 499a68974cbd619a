"""The cases that tuners are put side by side on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.replay import Recorded
from benchmarks.scenarios.families import DEVELOPMENT_SEEDS, HELD_OUT_SEEDS, draw
from benchmarks.scenarios.published import published
from benchmarks.search.machine import Machine, Simulated
from benchmarks.search.measured_draw import draw_measured
from benchmarks.search.recomputing import draw_recomputing
from benchmarks.search.results import Cases

GRIDS = Path(__file__).parent.parent / "grids"
# the published cases are few, so each is tuned with several seeds of its noise
PUBLISHED_SEEDS = range(3)
RECORDED_SEEDS = range(20)
SECOND_FAMILY_SEEDS = range(10_000)  # of the second family: what is developed is developed on these
# of each drawn set: its seeds, and what draws a machine
DRAWN: Final[dict[Cases, tuple[range, Callable[[int, float], Machine]]]] = {
    "development": (DEVELOPMENT_SEEDS, lambda seed, noise: Simulated(draw(seed, noise=noise))),
    "held-out": (HELD_OUT_SEEDS, lambda seed, noise: Simulated(draw(seed, noise=noise))),
    "measured-development": (SECOND_FAMILY_SEEDS, lambda seed, noise: draw_measured(seed, noise=noise)),
    "measured": (range(420_000, 500_000), lambda seed, noise: draw_measured(seed, noise=noise)),
    # the same of machines whose script may recompute activations
    "recomputing-development": (SECOND_FAMILY_SEEDS, lambda seed, noise: draw_recomputing(seed, noise=noise)),
    "recomputing": (range(520_000, 600_000), lambda seed, noise: draw_recomputing(seed, noise=noise)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A machine to tune.

    Attributes:
        cases: which set it is of.
        machine: what is tuned.
        noise: coefficient of variation of a step; None where steps were recorded.
        seed: of whoever tunes it.
    """

    cases: Cases
    machine: Machine
    noise: float | None
    seed: int


def cases_of(which: Cases, *, count: int, noises: tuple[float, ...]) -> Iterator[Case]:
    """The cases of a set.

    Args:
        which: the set. Nothing is ever tuned by looking at `held-out`, `measured` or `recomputing`; `development`,
            `measured-development` and `recomputing-development` are there for that.
        count: how many of the drawn ones.
        noises: noise levels; recorded ones have their own.
    """
    if which == "recorded":
        for path in sorted(GRIDS.glob("*/*.parquet")):
            machine = Recorded.read(path)
            yield from (Case(cases=which, machine=machine, noise=None, seed=seed) for seed in RECORDED_SEEDS)
        return
    for noise in noises:
        if which == "published":
            for scenario in published(noise=noise):
                machine = Simulated(scenario)
                yield from (Case(cases=which, machine=machine, noise=noise, seed=seed) for seed in PUBLISHED_SEEDS)
        else:
            seeds, drawn = DRAWN[which]
            for seed in seeds[:count]:
                yield Case(cases=which, machine=drawn(seed, noise), noise=noise, seed=seed)
