"""What was measured of the links between GPUs is what communication is expected to cost."""

import math
from dataclasses import replace

import pytest

from dsopt.search.believed import Believed
from dsopt.search.grid import Grid
from dsopt.search.history import History
from dsopt.search.link_prior import link_prior
from dsopt.study.space import Candidate
from tests.made_up import facts, observation, spec

RATES = {"all_reduce_gb_per_s": 200.0}


def test_an_all_reduce_of_all_parameters_takes_what_the_links_allow() -> None:
    known = facts(world_size=8, dtype="bf16", device="NVIDIA H100 80GB HBM3")
    [(name, (mean, _))] = link_prior(spec({}), known, RATES).items()
    seconds = known.num_params * 2 / 200e9
    assert name == "communication"
    assert seconds < math.exp(mean) < 2 * seconds


@pytest.mark.parametrize(
    "changes",
    [{"device": "cpu"}, {"dtype": "fp32"}, {"world_size": 1}, {"pipeline_stages": 2}],
)
def test_where_runs_communicate_otherwise_it_says_nothing(changes: dict[str, object]) -> None:
    known = replace(facts(world_size=8, dtype="bf16", device="NVIDIA H100 80GB HBM3"), **changes)
    assert link_prior(spec({}), known, RATES) == {}


def test_without_a_measure_it_says_nothing() -> None:
    assert link_prior(spec({}), facts(world_size=8, dtype="bf16"), {"matmul_tflops": 400.0}) == {}


def test_slow_links_make_stages_that_communicate_more_look_worse() -> None:
    """A third stage moves half as much again as a first one, which only counts where links are slow."""
    study = spec({"zero_optimization": {"stage": [1, 3]}})
    known = facts(zero_stage=1, micro_batch=4, world_size=8, dtype="bf16", num_params=1_000_000_000)
    grid = Grid.of([Candidate(stage=stage, micro_batch=4, gas=1) for stage in (1, 3)])

    def loss(rate: float) -> float:
        own = replace(observation(None, 40.0, facts=known), node_rates={"all_reduce_gb_per_s": rate})
        scores = Believed(study, known, History(reference=[own], stages={1: [], 3: []})).of_new(grid)
        return float(scores.mean[0] - scores.mean[1])

    assert loss(5.0) > loss(400.0) + 0.02
