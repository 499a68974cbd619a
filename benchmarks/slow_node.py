"""A study on eight nodes of which one is slower than the others: how soon it is known, and what it costs.

As `benchmarks.nodes`, with all steps of one node longer. It is put beside the same study where no node is slow, where
one is and nobody tells which node a run was on, and where each worker has measured its node before: by matrix products,
with an error of 3 %.

    python -m benchmarks.slow_node [published | held-out [COUNT [SHARE]]]
"""

import math
import multiprocessing
import os
import statistics
import sys
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from benchmarks.nodes import SharedStudy
from benchmarks.search.cases import Case, cases_of
from benchmarks.search.dsopt_tuner import DsoptTuner, spec_of
from benchmarks.search.machine import DsConfig
from benchmarks.search.oracle import oracle
from benchmarks.search.results import Cases
from dsopt.search.believed import Believed
from dsopt.search.history import Observation
from dsopt.search.steps import RunReference
from dsopt.simulated.cluster import Run

NODES = 8
NONE, KNOWN, UNKNOWN, MEASURED = "none slow", "one slow", "one slow, nobody told", "one slow, measured"
_TFLOPS, _ERROR = 400.0, 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """One study: its choice against the best, its runs, and after how many on the slow node that was known, if ever."""

    choice: float
    runs: int
    minutes: float
    on_slow: int
    found_after: int | None


class UnevenStudy(SharedStudy):
    """A study on nodes of which one gives a share of the others' throughput."""

    def __init__(self, *args: Any, share: float, slow: int, is_told: bool, is_measured: bool) -> None:  # noqa: ANN401
        super().__init__(*args, workers=NODES)
        self.share, self.slow, self.is_told = share, str(slow), is_told
        errors = np.random.default_rng(slow).normal(0.0, _ERROR, NODES) if is_measured else []
        self._rates = {
            str(node): {"matmul_tflops": _TFLOPS * math.exp(error) * (share if str(node) == self.slow else 1.0)}
            for node, error in enumerate(errors)
        }
        self.ended: Counter[str] = Counter()
        self.found_after: int | None = None
        self._nodes: dict[int, str] = {}
        self._first = np.random.default_rng((slow, NODES))  # which of the free nodes asks first
        self._step: RunReference | None = None

    def run_reference(self, step: RunReference) -> Observation:
        self._step = step
        try:
            return super().run_reference(step)
        finally:
            self._step = None

    def observe(self, *args: Any) -> Observation:  # noqa: ANN401 - of a study
        found = super().observe(*args)
        return replace(found, node_rates=self._rates.get(found.ran_on[0], {})) if found.ran_on else found

    def launched(self, config: DsConfig) -> tuple[Run, tuple[str, ...]]:
        run, _ = super().launched(config)
        nodes = self._first.permutation(NODES).tolist()
        free = [str(node) for node in nodes if str(node) not in self._nodes.values()]
        left = self._step.left_by(free) if self._step is not None else ()
        node = next((name for name in free if name not in left), free[0])
        self._nodes[len(self.journal.tried)] = node
        if node == self.slow:
            run = replace(run, step_seconds=run.step_seconds / self.share)
        return run, (node,) if self.is_told else ()

    def _end_one(self) -> None:
        trial = self._going[0][1]
        super()._end_one()
        node = self._nodes.pop(trial)
        self.ended[node] += 1
        facts = self.history.facts_for(self.spec)
        if node == self.slow and self.found_after is None and facts is not None:
            effect = Believed(self.spec, facts, self.history).nodes.get(node)
            if effect is not None and effect.mean < (self.share - 1) / 2:
                self.found_after = self.ended[node]


def tuned(case: Case, share: float) -> dict[str, Tuned]:
    """What one case comes to in each of the ways."""
    best = oracle(case.machine, fast=True).throughput
    found = {}
    for name, slower, is_told in (
        (NONE, 1.0, True),
        (KNOWN, share, True),
        (MEASURED, share, True),
        (UNKNOWN, share, False),
    ):
        tuner = DsoptTuner()
        study = UnevenStudy(
            spec_of(case.machine, fast=True),
            case.machine,
            tuner,
            case.seed,
            share=slower,
            slow=case.seed % NODES,
            is_told=is_told,
            is_measured=name == MEASURED,
        )
        seconds, record = study.tune()
        found[name] = Tuned(
            choice=(record.choice_true_throughput or 0.0) / best,
            runs=record.launches,
            minutes=seconds / 60,
            on_slow=study.ended[study.slow],
            found_after=study.found_after,
        )
    return found


def main() -> None:
    which = cast(Cases, sys.argv[1] if len(sys.argv) > 1 else "published")
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    share = float(sys.argv[3]) if len(sys.argv) > 3 else 0.7
    os.environ["OMP_NUM_THREADS"] = "1"
    cases = list(cases_of(which, count=count, noises=(0.02,)))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        rows = pool.starmap(tuned, [(case, share) for case in cases], chunksize=1)
    print(f"{which}, {len(cases)} studies on {NODES} nodes, one at {share:.0%} of the others, 2 % noise")
    print(f"{'nodes':>22} {'choice':>7} {'worst':>6} {'runs':>5} {'wall min':>9}")
    for name in (NONE, KNOWN, MEASURED, UNKNOWN):
        each = [row[name] for row in rows]
        print(
            f"{name:>22} {statistics.mean(one.choice for one in each):>7.3f} {min(one.choice for one in each):>6.3f} "
            f"{statistics.mean(one.runs for one in each):>5.1f} {statistics.mean(one.minutes for one in each):>9.1f}"
        )
    for way in (KNOWN, MEASURED):
        told = [row[way] for row in rows]
        for title, runs in (
            ("known after so many runs on it", Counter(one.found_after for one in told if one.found_after is not None)),
            ("not known, and so many runs on it", Counter(one.on_slow for one in told if one.found_after is None)),
        ):
            counted = ", ".join(f"{number}: {studies} studies" for number, studies in sorted(runs.items()))
            print(f"{way}, {title}: {counted}")


if __name__ == "__main__":
    main()
