"""What many claims ask of many runs: each run is added up once, and a model learns of each once."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from dsopt.search import memory as memory_module
from dsopt.search.activations import _line
from dsopt.search.grid import Grid
from dsopt.search.history import History, Observation
from dsopt.search.memory import MemoryModel
from dsopt.search.memory_runs import point_of
from dsopt.search.pruners import runs_since_best, runs_since_best_of
from dsopt.search.tally import Tally, tally
from dsopt.study.space import Candidate
from tests.made_up import GIB, facts, observation
from tests.made_up import sequential as spec

SIZES = [1, 2, 3, 4, 6, 8, 12, 16]


def candidates(count: int) -> list[Candidate]:
    buckets = (1000 * (1 + number) for number in range(count))
    knobs = [(("zero_optimization.reduce_bucket_size", bucket),) for bucket in buckets]
    return [Candidate(stage=1, micro_batch=SIZES[n % len(SIZES)], gas=1, knobs=knobs[n]) for n in range(count)]


def ended(number: int, candidate: Candidate) -> Observation:
    size = candidate.micro_batch
    peak = int(2.5 * GIB + size * GIB / 4)
    seen = facts(zero_stage=1, micro_batch=size, activation_bytes=size * GIB // 5, peak_memory_bytes=peak)
    return observation(candidate, value=float((number * 7919) % 997), facts=seen, trial=number, order=number)


def histories(count: int, workers: int = 8) -> Iterator[History]:
    """What a worker sees of a study, claim after claim, while runs of several workers end in any order."""
    draw, learnt = random.Random(0), {}
    runs: list[Observation] = []
    baseline = observation(None, 100.0, facts=facts())
    for number, candidate in enumerate(candidates(count)):
        runs.append(observation(candidate, state="running", reason=None, trial=number))
        while sum(run.state == "running" for run in runs) > workers - 1:
            which = draw.choice([index for index, run in enumerate(runs) if run.state == "running"])
            runs[which] = ended(which, candidates(count)[which])
        stages = {stage: list(runs) if stage == 1 else [] for stage in range(4)}
        yield History(reference=[baseline], stages=stages, learnt=learnt)


class Looked(Tally):
    looked: ClassVar[Counter[int]] = Counter()

    def __init__(self) -> None:
        self.names: list[str] = []

    def add(self, run: Observation) -> None:
        Looked.looked[run.trial] += 1
        self.names.append(f"{run.name} {run.state}")


def test_each_run_is_added_up_about_once_and_the_sum_is_that_of_all() -> None:
    Looked.looked.clear()
    for seen in histories(80):
        assert tally(seen, 1, Looked).names == [f"{run.name} {run.state}" for run in seen.stages[1]]
        assert runs_since_best_of(seen, 1) == runs_since_best(seen, seen.stages[1])
    assert np.mean([*Looked.looked.values()]) < 25  # 40 if each history were added up from nothing


def test_what_was_over_and_changes_is_added_up_again() -> None:
    *_, seen = histories(30)
    before = tally(seen, 1, Looked).names
    runs = [replace(seen.stages[1][0], name="other"), *seen.stages[1][1:]]
    changed = replace(seen, stages={**seen.stages, 1: runs})
    assert tally(changed, 1, Looked).names == ["other measured", *before[1:]]
    assert tally(seen, 1, Looked).names == before


def test_a_model_learns_of_each_run_once_though_they_end_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: Counter[int] = Counter()
    known: list[Observation] = []  # so that no two have the same id

    def counted(run: Observation) -> object:
        learnt[id(run)] += 1
        known.append(run)
        return point_of(run)

    monkeypatch.setattr(memory_module, "point_of", counted)
    asked = spec(ds_config={"zero_optimization": {"stage": 1}})
    model, at_first = None, 0
    for seen in histories(120):
        model = MemoryModel(asked, facts(), seen)
        measured = [run for run in seen.everything if run.facts is not None]
        if len(measured) <= 17:  # too few to go on from, and all kinds of sizes are still new
            at_first = sum(learnt.values())
            of_first = {id(run) for run in measured}
    later = [times for run, times in learnt.items() if run not in of_first]
    assert len(later) > 80
    assert set(later) == {1}
    assert sum(learnt.values()) == at_first + len(later)
    anew = MemoryModel(asked, facts(), replace(seen, learnt={}))
    grid = Grid.of([Candidate(stage=stage, micro_batch=size, gas=1) for stage in range(4) for size in (1, 8, 64)])
    assert model is not None
    for mine, theirs in zip(model.predict(grid), anew.predict(grid), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3)


def test_a_line_of_activations_is_that_of_least_squares_and_the_same_to_the_last_bit() -> None:
    draw = random.Random(1)
    left = {size: int(0.3 * GIB + size * GIB / 7) + draw.randrange(GIB // 50) for size in SIZES}
    first, slope = _line(left)
    np.testing.assert_allclose((slope, first), np.polyfit([*left], [*left.values()], 1), rtol=1e-9)
    for _ in range(50):
        shuffled = dict(draw.sample([*left.items()], len(left)))
        assert _line(shuffled) == (first, slope)
    assert _line({4: 8 * GIB}) == (0.0, 2.0 * GIB)
    assert _line({1: 4 * GIB, 4: 3 * GIB}) == pytest.approx((1.75 * GIB, 0.7 * GIB))  # half of the mean at least
