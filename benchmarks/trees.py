"""What XGBoost is worth: the same studies with and without it, also where knobs act otherwise at each stage.

    python -m benchmarks.trees [SCENARIOS]

A simulated cluster's knobs act alike at every stage, as the step-time model has it. So a third of the rows is of
machines whose knobs interact: each value of a knob acts otherwise at each stage, and beside each value of every other
knob.
"""

import hashlib
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import get_context
from unittest.mock import patch

import numpy as np

from benchmarks.scenarios.families import draw
from benchmarks.search.dsopt_tuner import DsoptTuner
from benchmarks.search.machine import DsConfig, Simulated, concrete
from benchmarks.search.oracle import oracle
from benchmarks.search.results import Row, row
from benchmarks.search.tables import pair_cells
from dsopt.search import cost_model
from dsopt.simulated.cluster import Run

_SEEDS = 310_000
_NOISES = (0.02, 0.1)
_PAIR = 0.03  # standard deviation of what two settings add together, or a setting at a stage
_KINDS = {"fast": (True, False), "full": (False, False), "full, knobs that interact": (False, True)}


class Interacting(Simulated):
    """A simulated machine whose knobs interact: every pair of settings makes a step longer or shorter by chance."""

    @property
    def name(self) -> str:
        return f"{super().name}-interacting"

    @property
    def without_noise(self) -> "Interacting":
        return Interacting(super().without_noise.scenario)

    def run(self, ds_config: DsConfig, launch: int) -> Run:
        run, factor = super().run(ds_config, launch), self._factor(ds_config)
        return replace(run, step_seconds=run.step_seconds * factor, true_step_seconds=run.true_step_seconds * factor)

    def true_throughput(self, ds_config: DsConfig) -> float | None:
        true = super().true_throughput(ds_config)
        return None if true is None else true / self._factor(ds_config)

    def _factor(self, ds_config: DsConfig) -> float:
        zero = concrete(ds_config).get("zero_optimization", {})
        settings = [f"{key}={value}" for key, value in sorted({"stage": 0, **zero}.items())]
        pairs = [f"{self.name} {one} {other}" for i, one in enumerate(settings) for other in settings[:i]]
        return math.exp(_PAIR * sum(_chance(pair) for pair in pairs))


def _chance(text: str) -> float:
    """A standard normal number that is always the same for this text."""
    return float(np.random.default_rng(list(hashlib.sha256(text.encode()).digest())).standard_normal())


def _pair(task: tuple[str, float, int]) -> tuple[str, float, Row, Row]:
    """The same study with XGBoost and without it."""
    kind, noise, seed = task
    fast, interacting = _KINDS[kind]
    machine = (Interacting if interacting else Simulated)(draw(seed, noise=noise))
    best = oracle(machine, fast=fast)

    def tuned() -> Row:
        record = DsoptTuner(fast=fast).tune(machine, seed)
        return row(record, machine, best, cases="fresh", noise=noise, is_fast=fast, seed=seed)

    with_trees = tuned()
    with patch.object(cost_model, "_MIN_RUNS", sys.maxsize):
        return kind, noise, with_trees, tuned()


def _lines(found: list[tuple[str, float, Row, Row]]) -> Iterator[str]:
    yield "| space | noise | launches with, without | hours of runs | choice ÷ oracle | the choice is better by |"
    yield "| :-- | --: | --: | --: | --: | --: |"
    for kind in _KINDS:
        for noise in _NOISES:
            both = [(a, b) for k, n, a, b in found if (k, n) == (kind, noise)]
            yield f"| {kind} | {noise:.0%} | {pair_cells(both)} |"


def main() -> None:
    """Prints the table."""
    scenarios = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    tasks = [(kind, noise, _SEEDS + i) for kind in _KINDS for noise in _NOISES for i in range(scenarios)]
    with get_context("spawn").Pool() as pool:
        found = pool.map(_pair, tasks, chunksize=1)
    print("\n".join(_lines(found)))


if __name__ == "__main__":
    main()
