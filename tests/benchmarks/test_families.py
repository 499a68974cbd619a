"""The families that scenarios are drawn from: wide, and with optima that have to be searched for."""

import functools
import json
from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.scenarios.families import DEVELOPMENT_SEEDS, HELD_OUT_SEEDS, draw
from dsopt.simulated.cluster import Scenario, settings_of, true_throughput
from dsopt.simulated.document import as_document, from_document
from dsopt.simulated.memory import state_bytes
from dsopt.simulated.model import Model


@functools.cache  # not on import: every test process collects this file
def scenarios():
    return [draw(seed, noise=0.02) for seed in DEVELOPMENT_SEEDS[:150]]


def config(scenario: Scenario, stage: int, micro_batch: int) -> dict:
    zero = {**scenario.baseline["zero_optimization"], "stage": stage}
    return {**scenario.baseline, "zero_optimization": zero, "train_micro_batch_size_per_gpu": micro_batch}


def optimum(scenario: Scenario) -> tuple[int, int, float]:
    """Stage, micro-batch size and throughput of the best, at the baseline's accumulation, among sizes 2 % apart."""
    per_size = scenario.baseline["gradient_accumulation_steps"] * scenario.cluster.ranks
    most = (scenario.max_train_batch_size or 10**9) // per_size
    found = []
    for stage in range(4):
        size = 1
        while size <= most and (value := true_throughput(scenario, config(scenario, stage, size))) is not None:
            found.append((stage, size, value))
            size = max(size + 1, int(size * 1.02))
    return max(found, key=lambda point: point[2])


def test_families_are_wide():
    assert {s.cluster.ranks for s in scenarios()} >= {1, 2, 4, 8, 16, 32, 64, 128, 256}
    assert {s.model.dtype for s in scenarios()} == {"fp32", "fp16", "bf16"}
    assert min(s.model.params for s in scenarios()) < 7e7
    assert max(s.model.params for s in scenarios()) > 6e10
    assert min(s.cluster.device.memory_bytes for s in scenarios()) < 25e9 < 140e9
    assert max(s.cluster.device.memory_bytes for s in scenarios()) > 140e9
    assert 10 < sum(s.model.trainable_params < s.model.params for s in scenarios()) < 75
    assert not set(DEVELOPMENT_SEEDS) & set(HELD_OUT_SEEDS)


def test_the_best_is_at_every_stage_somewhere_and_not_what_the_user_has():
    parallel = [s for s in scenarios() if s.cluster.ranks > 1]
    best = [optimum(s) for s in parallel]
    stages = Counter(stage for stage, _, _ in best)
    assert all(stages[stage] > 0.08 * len(parallel) for stage in range(4)), stages
    gains = [value / true_throughput(s, s.baseline) for s, (_, _, value) in zip(parallel, best, strict=True)]
    assert sum(gain > 1.1 for gain in gains) > 0.6 * len(gains)
    # the largest that fits is often not the best
    beyond = [
        true_throughput(s, config(s, stage, size + 1)) for s, (stage, size, _) in zip(parallel, best, strict=True)
    ]
    assert sum(value is not None for value in beyond) > 0.2 * len(beyond)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_each_stage_has_fewer_states_than_the_one_before(dtype, ranks):
    base = next(s for s in scenarios() if s.model.trainable_params == s.model.params)
    model: Model = replace(base.model, dtype=dtype)
    scenario = replace(base, model=model, baseline={"zero_optimization": {}, "gradient_accumulation_steps": 1})
    states = [
        sum(state_bytes(model, settings_of(scenario, config(scenario, stage, 1), ranks, 1))) for stage in range(4)
    ]
    assert states == sorted(states, reverse=True)
    assert len(set(states)) == 4


def test_a_scenario_survives_json():
    scenario = scenarios()[3]
    assert from_document(json.loads(json.dumps(as_document(scenario)))) == scenario
