"""The eight published cases: how close the simulated cluster comes to what was measured on the real one."""

import json

import pytest

from benchmarks.calibrate import (
    EXPERIMENT_STEPS,
    FIGURES,
    LARGEST,
    LAUNCHER_SECONDS,
    largest_micro_batch,
    published_throughputs,
    simulated_throughput,
)
from benchmarks.scenarios.published import published
from dsopt.simulated.cluster import run

CASES = json.loads(FIGURES.read_text("utf-8"))["models"]
SCENARIOS = {scenario.name: scenario for scenario in published(noise=0.02)}


def test_all_cases_are_there_in_order():
    assert list(SCENARIOS) == [case["name"] for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_throughputs_are_within_five_percent(case):
    for kind, stage, size, figure in published_throughputs(case):
        got = simulated_throughput(SCENARIOS[case["name"]], kind, stage, size)
        assert got == pytest.approx(figure, rel=0.05), (kind, stage, size)


@pytest.mark.parametrize("name", LARGEST)
def test_largest_micro_batch_sizes_are_within_one_or_five_percent(name):
    for stage, (low, high) in LARGEST[name].items():
        got = largest_micro_batch(SCENARIOS[name], stage)
        assert min(low - 1, low * 0.95) <= got <= max(high + 1, high * 1.05), stage


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_an_experiment_takes_as_long_as_published(case):
    scenario = SCENARIOS[case["name"]]
    result = run(scenario, scenario.baseline, launch=0, steps=0)
    assert result.oom is None
    seconds = LAUNCHER_SECONDS + scenario.traits.start_seconds + EXPERIMENT_STEPS * result.true_step_seconds
    assert seconds == pytest.approx(60 * case["minutes"] / case["experiments"], rel=0.1)
