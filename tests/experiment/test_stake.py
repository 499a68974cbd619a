"""When further steps of a run are worth their time, and when it is stopped because it cannot win."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.coverage import WARM_UP, Case
from dsopt.experiment.measure import Measurement, measure
from dsopt.experiment.stake import Stake
from dsopt.protocol.text import significant
from dsopt.search.history import History
from dsopt.store.attempts import Task
from dsopt.study.part import Part
from dsopt.study.space import Candidate
from dsopt.study.spec import MeasurementBudget
from dsopt.study.step_noise import StepNoise
from dsopt.worker.preparing import rules_of
from dsopt.worker.stakes import stake_of
from tests.made_up import facts, observation, spec

NOISE = StepNoise(deviation=0.02, correlation=0.3, steps=200)
STAKE = Stake(
    metric="throughput", mean=math.log(80), variance=0.02**2, best=math.log(80), best_value=80.0, launch=0.007**2,
    spread=0.0166**2, noise=NOISE, per_second=0.0025 / 30,
)  # fmt: skip


def staked(metric: str, best: float) -> Stake:
    """A run of which nothing is known beforehand, against a best."""
    score = math.log(best) if metric == "throughput" else -math.log(best)
    return replace(STAKE, metric=metric, variance=math.inf, best=score, best_value=best)


def measured(times: np.ndarray) -> Measurement:
    measurement = measure(times, 8, 0.02, min_warmup=3)
    assert measurement is not None
    return measurement


def lost(times: np.ndarray, metric: str, best: float) -> str | None:
    return staked(metric, best).lost(measured(times))


def steps(count: int = 30, seconds: float = 0.1) -> np.ndarray:
    """Steady steps with some noise: 80 samples/s in batches of 8."""
    return seconds * (1 + 0.02 * np.array([(7919 * i) % 13 - 6 for i in range(count)]) / 6)


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
    stake = staked(metric, 1e-3 if metric == "latency" else 1e6)
    reachable = stake.reachable(measured(steps()))
    assert least < reachable < most
    rising = measured(steps() * np.linspace(1.004, 1.0, 30))  # its later half is faster: one figure is told of both
    said = stake.lost(rising)
    assert said is not None and f" {significant(stake.reachable(rising), 4)} " in said


def test_few_steps_and_drifting_ones_have_not_lost_and_are_not_enough() -> None:
    for times in (steps(12), steps() * np.linspace(1.3, 1.0, 30)):
        assert lost(times, "throughput", 1000) is None
        assert not STAKE.is_enough(measured(times), 30.0)


def test_so_much_noise_that_little_is_known_has_not_lost() -> None:
    assert lost(0.1 * np.array([1, 1, 1, 5] * 5), "latency", 110) is None
    assert lost(0.1 * np.array([1, 1, 1, 5] * 5), "throughput", 72) is None


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
    """Launches differ by 1 % (standard deviation); correlated steps, looked at now and then."""
    generator = np.random.default_rng(3)
    stopped = 0
    for _ in range(100):
        best = 8 * (1 + 0.01 * generator.normal())
        launch = (1 + 0.01 * generator.normal()) / speed
        times = launch * Case(noise=noise, correlation=0.3, warm_up=True).step_times(generator, 60)
        against = replace(staked("throughput", best), noise=replace(NOISE, deviation=noise))
        stopped += any(against.lost(measured(times[:count])) for count in range(15, 60, 3))
    assert least <= stopped / 100 <= most


def test_a_run_that_still_warms_up_goes_on() -> None:
    """Its own noise would hide that: what is left of a warm-up is in it."""
    steady, alone = steps(15), replace(STAKE, best=None, best_value=None)
    warming = steady * (1 + 0.05 * 0.85 ** np.arange(15))
    assert alone.is_enough(measured(steady), 2.0)
    assert not alone.is_enough(measured(warming), 2.0)


def test_a_run_without_a_race_is_not_stopped() -> None:
    assert replace(staked("throughput", 1000), may_stop=False).lost(measured(steps())) is None


def test_the_throughput_of_a_gpu_is_that_of_the_run_by_its_gpus() -> None:
    """80 samples/s are 20 of each of four GPUs."""
    of_one = replace(staked("throughput", 25.0), metric="throughput_per_gpu")
    assert of_one.lost(measured(steps())) is None
    why = replace(of_one, gpus=4).lost(measured(steps()))
    assert why is not None and why.endswith("samples/s/GPU, cannot beat 25")


def test_a_run_has_as_many_gpus_as_its_candidate() -> None:
    own = observation(None, 10.0, facts=facts(zero_stage=1, micro_batch=4, world_size=8))
    history = History(reference=[own], stages={1: []})
    candidate = Candidate(stage=1, micro_batch=4, gas=1, knobs=(("num_gpus", 2),))
    for metric, gpus in (("throughput_per_gpu", 2), ("throughput", 1)):
        stake = stake_of(spec(metric=metric), candidate.name, "joint", candidate, history)
        assert stake is not None and stake.gpus == gpus


def test_the_longer_a_start_takes_the_more_steps_a_run_has() -> None:
    """Another launch would cost that start again."""
    alone = replace(STAKE, best=None, best_value=None, noise=replace(NOISE, deviation=0.1))
    times = Case(noise=0.1, correlation=0.3, warm_up=False).step_times(np.random.default_rng(1), 300) * 0.1
    ended = [
        next(n for n in range(16, 300) if alone.is_enough(measured(times[:n]), start + 0.1 * n)) for start in (1, 30)
    ]
    assert ended[0] < ended[1]


def test_a_run_beside_the_best_goes_on_and_one_far_behind_does_not() -> None:
    """More steps can show which of two is the better, where that is open."""
    noisy = replace(STAKE, noise=replace(NOISE, deviation=0.1), spread=1.0, launch=0.001**2)
    times = Case(noise=0.1, correlation=0.3, warm_up=False).step_times(np.random.default_rng(1), 40) * 0.1
    near = measured(times)
    best = math.log(near.samples_per_second)
    assert not replace(noisy, mean=best, best=best).is_enough(near, 30.0)
    assert replace(noisy, mean=best, best=best + 0.3).is_enough(near, 30.0)


def test_steps_that_cost_more_than_they_tell_are_left_out() -> None:
    near = measured(steps())
    dear = replace(STAKE, spread=1.0, per_second=1.0)
    assert dear.is_enough(near, 30.0)
    assert not replace(dear, per_second=0.0, noise=replace(NOISE, deviation=0.1)).is_enough(near, 30.0)


def rules(
    phase: str | None, *, autotuning: dict | None = None, measurement: dict | None = None, round_: int = 0
) -> Stake | None:
    """What is at stake in a run at ZeRO 1, after one run at each of two stages and a better one that was imported."""
    study = spec(**(autotuning or {})).model_copy(update={"measurement": MeasurementBudget(**(measurement or {}))})
    candidates = [Candidate(stage=stage, micro_batch=4, gas=1) for stage in (0, 1)]
    first, second = (
        observation(candidate, 10.0 + candidate.stage, facts=facts(zero_stage=candidate.stage, micro_batch=4))
        for candidate in candidates
    )
    imported = observation(Candidate(stage=1, micro_batch=8, gas=1), 99.0 if study.autotuning.maximize else 1.0,
                           imported="elsewhere")  # fmt: skip
    history = History(reference=[], stages={0: [first], 1: [second, imported]}, maximize=study.autotuning.maximize)
    task = Task(part=Part("z1"), trial=3, name="z1_gas1_tmbspg2", round=round_, phase=phase)
    return rules_of(study, task, Candidate(stage=1, micro_batch=2, gas=1), history).stake


def test_what_is_at_stake_in_which_run() -> None:
    found = rules("joint")
    assert found is not None
    assert found.best_value == pytest.approx(11.0, rel=0.05)  # and not what was imported
    assert found.may_stop
    latency = rules("explore", autotuning={"metric": "latency"})
    assert latency is not None
    assert latency.best_value == pytest.approx(10.0, rel=0.05)
    assert rules("explore", autotuning={"metric": "FLOPS"}) is None
    assert rules("explore", autotuning={"metric": "backward"}) is None
    assert rules("range") is None
    for unraced in (rules("explore", measurement={"race": False}), rules(None, round_=1)):
        assert unraced is not None
        assert not unraced.may_stop
