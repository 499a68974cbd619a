"""A pipeline's figures are those of all its stages, whichever rank holds them."""

from dsopt.experiment.outcome import Measured
from dsopt.protocol.events import Flops
from tests.runs import engine, outcome_of, rules, step

STAGES = [
    engine(world_size=4, num_params=params, trainable_params=params - 1, largest_layer_params=layer,
           rank=rank, pipeline_stages=2, pipeline_stage=stage)
    for rank, stage, params, layer in [(0, 0, 10, 4), (1, 0, 10, 4), (2, 1, 30, 9), (3, 1, 30, 9)]
]  # fmt: skip
STEPS = [step(number) for number in range(40)]


def figures(*events: object) -> Measured:
    found = outcome_of(*events, *STEPS, under=rules())
    assert isinstance(found, Measured)
    return found


def test_parameters_are_those_of_all_stages_each_counted_once() -> None:
    found = figures(*STAGES).engine
    assert (found.num_params, found.trainable_params, found.largest_layer_params) == (40, 38, 9)


def test_a_stage_that_has_not_told_counts_as_the_others() -> None:
    assert figures(STAGES[0]).engine.num_params == 20


def test_flops_are_the_mean_of_the_ranks() -> None:
    counted = [Flops(rank=rank, flops_per_step=value) for rank, value in enumerate([1.0, 1.0, 3.0, 3.0])]
    assert figures(*STAGES, *counted).flops_per_step == 2.0


def test_without_a_pipeline_rank_0_speaks_for_all() -> None:
    ranks = [engine(rank=rank, num_params=10) for rank in range(2)]
    counted = [Flops(rank=rank, flops_per_step=value) for rank, value in enumerate([1.0, 3.0])]
    found = figures(*ranks, *counted)
    assert (found.engine.num_params, found.flops_per_step) == (10, 1.0)
