"""The same dry-run study on 1, 2, 4 and 8 nodes, each with a worker of its own: wall time, runs, and the choice.

Time is computed, so that no node waits for this machine's processors: the plan is that of real workers, each of which
runs one thing at a time and begins the next as soon as that has ended. What claims cost is in `benchmarks.thousand`.

    python -m benchmarks.nodes [published | held-out [fast | full | grid [COUNT]]]

`grid` runs each of some sizes and accumulations at each stage where it fits, as with `tuner_type: gridsearch`.
"""

import heapq
import itertools
import math
import multiprocessing
import os
import statistics
import sys
from dataclasses import dataclass, replace
from typing import Any, cast

from benchmarks.search.cases import Case, cases_of
from benchmarks.search.dsopt_tuner import DsoptTuner, Study, spec_of
from benchmarks.search.records import Record
from benchmarks.search.results import Cases
from dsopt.search.carry_out import next_run
from dsopt.search.history import BASELINE, Observation
from dsopt.search.steps import Explore, Finish, RunReference
from dsopt.search.tuners.model_based import ranked
from dsopt.study.spec import StudySpec

WORKERS = (1, 2, 4, 8)
SIZES, ACCUMULATIONS = [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64], [1, 2, 4, 8]  # of `grid`


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What so many workers did: seconds until the end, seconds of all runs together, runs, the true throughput."""

    workers: int
    seconds: float
    busy_seconds: float
    runs: int
    throughput: float | None


class SharedStudy(Study):
    """A study that several workers have, each on a node of its own."""

    def __init__(self, *args: Any, workers: int) -> None:  # noqa: ANN401
        super().__init__(*args)
        self._workers = workers
        self._now = 0.0
        self._going: list[tuple[float, int, list[Observation], int, Observation]] = []
        self._ended = itertools.count()

    def tune(self) -> tuple[float, Record]:
        """Everything until the study is finished, and when that is, in seconds."""
        while True:
            found = next_run(self.spec, self) if len(self._going) < self._workers else None
            if isinstance(found, Observation):
                continue
            if self._going:
                self._end_one()
            else:
                assert found is not None
                return self._now, self.close() if isinstance(found, Finish) else self.journal.close(None)

    def run_reference(self, step: RunReference) -> Observation:
        phase = "confirm" if step.round else "profile" if step.name == "profile" else "baseline"
        found = self.observe(step.candidate, cast(Any, phase), step.name)
        candidate = None if step.name == BASELINE else step.candidate
        return self._begin(
            self.reference, replace(found, name=step.name, round=step.round, candidate=candidate, why=step.why)
        )

    def explore(self, step: Explore) -> Observation:
        candidate = ranked(step.candidates, step.forecast)[0]
        found = self.observe(candidate, "search", candidate.name)
        return self._begin(self.stages[step.stage], replace(found, phase=step.phase))

    def _begin(self, where: list[Observation], outcome: Observation) -> Observation:
        assert outcome.seconds is not None
        unknown: dict[str, Any] = dict.fromkeys(("reason", "value", "value_so_far", "facts", "half_width", "seconds"))
        running = replace(outcome, **unknown, state="running", message="", order=math.inf)
        heapq.heappush(self._going, (self._now + outcome.seconds, outcome.trial, where, len(where), outcome))
        where.append(running)
        return running

    def _end_one(self) -> None:
        self._now, _, where, place, outcome = heapq.heappop(self._going)
        where[place] = replace(outcome, order=float(next(self._ended)))


def tuned(case: Case, space: str) -> list[Tuned]:
    """What one case takes with each number of workers."""
    found = []
    spec = _grid_of(case) if space == "grid" else spec_of(case.machine, fast=space == "fast")
    for workers in WORKERS:
        study = SharedStudy(spec, case.machine, DsoptTuner(fast=space != "full"), case.seed, workers=workers)
        seconds, record = study.tune()
        found.append(
            Tuned(
                workers=workers,
                seconds=seconds,
                busy_seconds=record.cluster_seconds,
                runs=record.launches,
                throughput=record.choice_true_throughput,
            )
        )
    return found


def _grid_of(case: Case) -> StudySpec:
    """Each size with each accumulation and stage, run without a model that chooses."""
    spec = spec_of(case.machine, fast=True)
    own = spec.model_dump(exclude_defaults=True)
    lists = {"train_micro_batch_size_per_gpu": SIZES, "gradient_accumulation_steps": ACCUMULATIONS}
    tuning = {**own.get("autotuning", {}), "tuner_type": "gridsearch", "tuner_num_trials": 100_000}
    return StudySpec.model_validate({**own, "ds_config": {**own["ds_config"], **lists}, "autotuning": tuning})


def main() -> None:
    which = cast(Cases, sys.argv[1] if len(sys.argv) > 1 else "published")
    space = sys.argv[2] if len(sys.argv) > 2 else "fast"
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 40
    os.environ["OMP_NUM_THREADS"] = "1"
    cases = list(cases_of(which, count=count, noises=(0.02,)))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        rows = pool.starmap(tuned, [(case, space) for case in cases], chunksize=1)
    print(f"{which}, {len(cases)} studies of the space `{space}`, 2 % noise")
    print(f"{'workers':>7} {'wall min':>9} {'faster':>7} {'runs':>6} {'runs x':>7} {'busy':>6} {'choice':>16}")
    for at, workers in enumerate(WORKERS):
        ones = [(row[0], row[at]) for row in rows]
        choices = [many.throughput / one.throughput for one, many in ones if one.throughput and many.throughput]
        print(
            f"{workers:>7} {sum(many.seconds for _, many in ones) / 60 / len(ones):>9.1f} "
            f"{statistics.geometric_mean(one.seconds / many.seconds for one, many in ones):>7.2f} "
            f"{sum(many.runs for _, many in ones) / len(ones):>6.1f} "
            f"{statistics.geometric_mean(many.runs / one.runs for one, many in ones):>7.2f} "
            f"{sum(m.busy_seconds for _, m in ones) / workers / sum(m.seconds for _, m in ones):>6.0%} "
            f"{statistics.geometric_mean(choices):>7.3f} ({min(choices):.2f} to {max(choices):.2f})"
        )


if __name__ == "__main__":
    main()
