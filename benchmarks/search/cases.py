"""The cases that tuners are put side by side on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
# the second family: what is developed is developed on the first ones
MEASURED_SEEDS = {"measured-development": range(10_000), "measured": range(410_000, 1_000_000)}
# the same of machines whose script may recompute activations
RECOMPUTING_SEEDS = {"recomputing-development": range(10_000), "recomputing": range(510_000, 1_000_000)}


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
        elif which in MEASURED_SEEDS:
            for seed in MEASURED_SEEDS[which][:count]:
                yield Case(cases=which, machine=draw_measured(seed, noise=noise), noise=noise, seed=seed)
        elif which in RECOMPUTING_SEEDS:
            for seed in RECOMPUTING_SEEDS[which][:count]:
                yield Case(cases=which, machine=draw_recomputing(seed, noise=noise), noise=noise, seed=seed)
        else:
            seeds = HELD_OUT_SEEDS if which == "held-out" else DEVELOPMENT_SEEDS
            for seed in seeds[:count]:
                yield Case(cases=which, machine=Simulated(draw(seed, noise=noise)), noise=noise, seed=seed)
