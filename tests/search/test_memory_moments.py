"""What counts at each of the three moments when a rank's memory can be highest."""

import numpy as np
import pytest

from dsopt.search.grid import Grid
from dsopt.search.kinds import Kinds
from dsopt.search.memory_moments import SHARES, WEIGHTS, Moments
from dsopt.study.space import ZERO, Candidate
from tests.made_up import facts, history, spec

PARAMS = 1000
MODEL = facts(num_params=PARAMS, trainable_params=PARAMS, dtype="fp16", device="H200")
LINE = {(): (100.0, 10.0)}  # activations: 100 bytes, and 10 more a sample
ZERO_BUCKETS = {"zero_optimization": {"reduce_bucket_size": 50}}
GRADIENTS = 2 * PARAMS  # fp16
NAMES = ("forward", "backward", "step")


def rows(*candidates: Candidate, ds_config: dict | None = None, model=MODEL) -> dict[str, np.ndarray]:
    grid, study = Grid.of(list(candidates)), spec(ds_config or ZERO_BUCKETS)
    return dict(zip(NAMES, Moments(study, model, LINE, Kinds(study, history()), []).of(grid), strict=True))


def weight(found: np.ndarray, name: str) -> list[float]:
    return found[:, WEIGHTS.index(name)].tolist()


def at(stage: int, micro_batch: int = 2, gas: int = 1) -> Candidate:
    return Candidate(stage=stage, micro_batch=micro_batch, gas=gas)


def test_activations_are_there_when_a_forward_pass_ends_and_never_later() -> None:
    found = rows(at(0), at(0, micro_batch=5))
    assert weight(found["forward"], "activations") == [120.0, 150.0]
    assert weight(found["backward"], "activations") == weight(found["step"], "activations") == [0.0, 0.0]


@pytest.mark.parametrize(("stage", "share"), [(0, 1), (1, 1), (2, 2), (3, 2)])
def test_gradients_are_all_there_after_a_backward_pass(stage: int, share: int) -> None:
    """Of ranks that share gradients, each has its part."""
    found = rows(at(stage))
    forward, backward, step = (weight(found[name], "states")[0] for name in NAMES)
    assert backward == step == forward + GRADIENTS / share
    assert weight(found["forward"], "kept_gradients") == [GRADIENTS / share]
    assert weight(found["backward"], "kept_gradients") == weight(found["step"], "kept_gradients") == [0.0]


def test_with_accumulation_gradients_are_there_in_forward_passes_too() -> None:
    found = rows(at(1), at(1, gas=2))
    first, second = weight(found["forward"], "states")
    assert second == first + GRADIENTS
    assert weight(found["forward"], "kept_gradients") == [GRADIENTS, 0.0]
    assert len(set(weight(found["step"], "states"))) == 1


def test_buckets_are_in_transit_until_the_optimizer_steps() -> None:
    found = rows(at(2))
    assert weight(found["forward"], "reduce_buffers") == weight(found["backward"], "reduce_buffers")
    assert weight(found["backward"], "reduce_buffers")[0] >= 2 * 50
    assert weight(found["step"], "reduce_buffers") == [0.0]


@pytest.mark.parametrize(("stage", "updated"), [(0, PARAMS), (1, PARAMS / 2), (2, PARAMS / 2), (3, PARAMS / 2)])
def test_an_optimizer_step_copies_the_gradients_of_what_it_updates(stage: int, updated: float) -> None:
    found = rows(at(stage))
    assert weight(found["step"], "step_copies") == [4 * updated]  # in fp32
    assert weight(found["forward"], "step_copies") == weight(found["backward"], "step_copies") == [0.0]


@pytest.mark.parametrize(
    ("torch_adam", "device", "dtype", "times"),
    [(True, "H200", "bf16", 2), (False, "H200", "bf16", 1), (True, "cpu", "bf16", 1), (True, "H200", "fp32", 1)],
)
def test_pytorchs_adam_holds_temporaries_beside_the_copy(torch_adam: bool, device: str, dtype: str, times: int) -> None:
    """An H100 had 24 bytes a parameter at the step of ZeRO 0 in bf16: 16 of states, 4 and 4."""
    config = {**ZERO_BUCKETS, "optimizer": {"type": "AdamW", "params": {"torch_adam": torch_adam}}}
    model = facts(num_params=PARAMS, trainable_params=PARAMS, dtype=dtype, device=device)
    assert weight(rows(at(0), ds_config=config, model=model)["step"], "step_copies") == [times * 4 * PARAMS]


def test_zero_3_steps_one_sub_group_after_the_other() -> None:
    config = {"zero_optimization": {"stage": 3, "sub_group_size": 100}}
    assert weight(rows(at(3), ds_config=config)["step"], "step_copies") == [400.0]


def test_gathered_parameters_are_there_at_every_moment_of_zero_3_alone() -> None:
    config = {"zero_optimization": {"stage3_max_live_parameters": 30, "stage3_prefetch_bucket_size": 10}}
    found = rows(at(2), at(3), ds_config=config)
    for name in NAMES:
        assert weight(found[name], "live_parameters") == [0.0, 2 * 40]


def test_effects_of_a_stage_are_relative_to_its_states_at_that_moment() -> None:
    for found in rows(at(1), at(3)).values():
        states = weight(found, "states")
        shares = found[:, SHARES]
        assert shares.tolist() == [[0.0, states[0], 0.0, 0.0], [0.0, 0.0, 0.0, states[1]]]


def test_offloaded_optimizer_states_leave_no_copies_and_from_zero_2_no_gradients() -> None:
    candidate = Candidate(stage=2, micro_batch=2, gas=1, knobs=((f"{ZERO}offload_optimizer.device", "cpu"),))
    found = rows(candidate)
    assert weight(found["step"], "step_copies") == [0.0]
    assert weight(found["backward"], "states") == weight(found["forward"], "states") == [2 * PARAMS]
