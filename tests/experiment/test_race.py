"""When a run is stopped because it cannot win: surely, and never for its warm-up or one unlucky launch."""

import re

import numpy as np
import pytest

from benchmarks.coverage import WARM_UP, Case
from dsopt.experiment.measure import measure
from dsopt.experiment.race import Race
from dsopt.search.history import History
from dsopt.store.attempts import Task
from dsopt.study.part import Part
from dsopt.study.space import Candidate
from dsopt.study.spec import MeasurementBudget
from dsopt.worker.preparing import rules_of
from tests.made_up import observation, spec


def lost(times: np.ndarray, metric: str, best: float) -> str | None:
    measurement = measure(times, 8, 0.02, min_warmup=3)
    assert measurement is not None
    return Race(metric=metric, best=best).lost(measurement)


def steps(count: int = 30, seconds: float = 0.1) -> np.ndarray:
    """Steady steps with some noise: 80 samples/s in batches of 8."""
    return seconds * (1 + 0.01 * np.array([(7919 * i) % 13 - 6 for i in range(count)]) / 6)


@pytest.mark.parametrize(
    ("metric", "best", "words"),
    [
        ("throughput", 70, None),
        ("throughput", 80, None),
        ("throughput", 83, None),  # two launches of one configuration may differ by as much
        ("throughput", 90, r"^at most 8\d\.?\d* samples/s, cannot beat 90$"),
        ("latency", 110, None),
        ("latency", 100, None),
        ("latency", 97, None),
        ("latency", 80, r"^at least 9\d\.?\d* ms/step, cannot beat 80$"),
    ],
)
def test_a_run_has_lost_when_it_cannot_reach_the_best(metric: str, best: float, words: str | None) -> None:
    said = lost(steps(), metric, best)
    if words is None:
        assert said is None
    else:
        assert said is not None
        assert re.match(words, said)


@pytest.mark.parametrize(("metric", "least", "most"), [("throughput", 80.5, 89), ("latency", 90, 99.5)])
def test_what_a_run_could_reach_is_better_than_what_it_shows(metric: str, least: float, most: float) -> None:
    measurement = measure(steps(), 8, 0.02, min_warmup=3)
    assert measurement is not None
    assert least < Race(metric=metric, best=1.0).reachable(measurement) < most


def test_few_steps_and_drifting_ones_have_not_lost() -> None:
    assert lost(steps(12), "throughput", 1000) is None
    assert lost(steps() * np.linspace(1.2, 1.0, 30), "throughput", 1000) is None


def test_so_much_noise_that_nothing_is_known_has_not_lost() -> None:
    assert lost(0.1 * np.array([1, 1, 1, 300] * 5), "latency", 1.0) is None
    assert lost(0.1 * np.array([1, 1, 1, 300] * 5), "throughput", 1e6) is None


def test_a_warm_up_costs_nobody_the_race() -> None:
    """The configuration is exactly as good as the best, which is looked at after every step."""
    times = steps(60)
    times[: len(WARM_UP)] *= WARM_UP
    assert not any(lost(times[:count], "throughput", 80) for count in range(6, 60))


@pytest.mark.parametrize(
    ("noise", "speed", "least", "most"),
    [(0.02, 1.0, 0.0, 0.01), (0.1, 1.0, 0.0, 0.01), (0.02, 0.85, 0.95, 1.0), (0.1, 0.7, 0.95, 1.0)],
)
def test_how_often_a_race_is_lost_by_speed(noise: float, speed: float, least: float, most: float) -> None:
    """Launches differ by 1 % (standard deviation); correlated steps, looked at after each until precise."""
    generator = np.random.default_rng(3)
    stopped = 0
    for _ in range(100):
        best = 8 * (1 + 0.01 * generator.normal())
        launch = (1 + 0.01 * generator.normal()) / speed
        times = launch * Case(noise=noise, correlation=0.3, warm_up=True).step_times(generator, 60)
        stopped += any(lost(times[:count], "throughput", best) for count in range(15, 60, 3))
    assert least <= stopped / 100 <= most


def rules(phase: str | None, *, autotuning: dict | None = None, measurement: dict | None = None) -> Race | None:
    """The race of a run at ZeRO 1, after one run at each of two stages and a better one that was imported."""
    study = spec(**(autotuning or {})).model_copy(update={"measurement": MeasurementBudget(**(measurement or {}))})
    candidates = [Candidate(stage=stage, micro_batch=4, gas=1) for stage in (0, 1)]
    first, second = (observation(candidate, 10.0 + candidate.stage) for candidate in candidates)
    imported = observation(Candidate(stage=1, micro_batch=8, gas=1), 99.0 if study.autotuning.maximize else 1.0,
                           imported="elsewhere")  # fmt: skip
    history = History(reference=[], stages={0: [first], 1: [second, imported]}, maximize=study.autotuning.maximize)
    task = Task(part=Part("z1"), trial=3, name="z1_gas1_tmbspg2", round=0, phase=phase)
    return rules_of(study, task, Candidate(stage=1, micro_batch=2, gas=1), history).race


def test_who_races_what() -> None:
    assert rules("explore") == Race(metric="throughput", best=11.0)
    assert rules("explore", autotuning={"metric": "latency"}) == Race(metric="latency", best=10.0)
    assert rules("explore", autotuning={"metric": "FLOPS"}) is None
    assert rules("explore", autotuning={"metric": "backward"}) is None
    assert rules("explore", measurement={"race": False}) is None
    assert rules("range") is None
    assert rules(None) is None
