"""What it is worth to know the links between GPUs: the same studies with a measured all-reduce, and without.

    python -m benchmarks.links [SCENARIOS]

On simulated clusters of one node, whose bandwidth a worker measures with an error of 10 %.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.scenarios.families import draw
from benchmarks.search.dsopt_tuner import DsoptTuner, Study, spec_of
from benchmarks.search.machine import Simulated
from benchmarks.search.oracle import oracle
from benchmarks.search.results import Row, row
from benchmarks.search.tables import pair_cells
from dsopt.search.history import Observation

_SEEDS = 720_000
_NOISES = (0.02, 0.1)
_ERROR = 0.1  # of what a worker measures, as a standard deviation of logarithms


class MeasuredStudy(Study):
    """A study whose worker has measured its node."""

    def observe(self, *args: Any) -> Observation:  # noqa: ANN401 - of a study
        cluster = self.machine.scenario.cluster  # type: ignore[attr-defined]
        error = math.exp(_ERROR * np.random.default_rng(self.launch // 10_000).standard_normal())
        rates = {"all_reduce_gb_per_s": cluster.intra_bytes_per_second / 1e9 * error}
        return replace(super().observe(*args), node_rates=rates)


def _pair(task: tuple[float, int]) -> tuple[float, Row, Row] | None:
    """The same study with the measure and without it; None on several nodes, or on one GPU."""
    noise, seed = task
    machine = Simulated(draw(seed, noise=noise))
    if machine.facts.nodes > 1 or machine.facts.gpus_per_node < 2:
        return None
    best, spec, tuner = oracle(machine, fast=True), spec_of(machine, fast=True), DsoptTuner()

    def tuned(kind: type[Study]) -> Row:
        record = kind(spec, machine, tuner, seed).run()
        return row(record, machine, best, cases="fresh", noise=noise, is_fast=True, seed=seed)

    return noise, tuned(MeasuredStudy), tuned(Study)


def _lines(found: list[tuple[float, Row, Row]]) -> Iterator[str]:
    yield "| noise | studies | launches | cluster time, h | choice | difference of the choice |"
    yield "|---|---|---|---|---|---|"
    for noise in _NOISES:
        both = [(a, b) for n, a, b in found if n == noise]
        yield f"| {noise:.0%} | {len(both)} | {pair_cells(both)} |"


def main() -> None:
    """Prints the table: with the measure, without it."""
    scenarios = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    tasks = [(noise, _SEEDS + i) for noise in _NOISES for i in range(scenarios)]
    with get_context("spawn").Pool(2) as pool:
        found = [pair for pair in pool.map(_pair, tasks, chunksize=1) if pair is not None]
    print("\n".join(_lines(found)))


if __name__ == "__main__":
    main()
