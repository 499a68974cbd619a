"""Ranks that share one replica of the model hold its states once between them."""

from dataclasses import replace

import pytest

from dsopt.estimates.zero_memory import Offload
from dsopt.search.sharding import Sharding, sharding_of
from dsopt.study.space import ZERO, Setting
from tests.made_up import facts, spec

KEY = "zero_hpz_partition_size"
NONE = Offload(optimizer="none", param="none")
MODEL = facts(num_params=8000, trainable_params=8000, largest_layer_params=100, dtype="fp16")


def of(stage: int, model_parallel: int, offload: Offload = NONE, ranks: int = 8) -> Sharding:
    return Sharding(stage=stage, nodes=1, ranks_per_node=ranks, model_parallel=model_parallel, offload=offload)


@pytest.mark.parametrize("parallel", [1, 2, 4])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_rank_holds_what_its_part_needs_on_as_many_replicas(stage: int, parallel: int) -> None:
    """As if each part were a model of its own, which the replicas share."""
    part = facts(num_params=8000 // parallel, trainable_params=8000 // parallel, dtype="fp16")
    alone = of(stage, 1, ranks=8 // parallel)
    shared = of(stage, parallel)
    assert shared.device_bytes(MODEL) == pytest.approx(alone.device_bytes(part))
    assert shared.gradient_bytes(MODEL) == pytest.approx(alone.gradient_bytes(part))
    assert shared.updated_params(MODEL) == pytest.approx(alone.updated_params(part))


def test_all_ranks_together_hold_it_once_at_zero_3() -> None:
    for parallel in (1, 2, 8):
        assert 8 * of(3, parallel).device_bytes(MODEL) == pytest.approx(16 * 8000)


def test_of_offloaded_parameters_a_rank_gathers_its_part_of_the_largest_layer() -> None:
    """The probe tells of the largest layer as the rank has it, whoever has the others."""
    offload = Offload(optimizer="cpu", param="cpu")
    assert of(3, 2, offload).device_bytes(MODEL) == of(3, 1, offload).device_bytes(MODEL) == 2 * 100 + 2 * 100


@pytest.mark.parametrize(
    ("own", "setting", "secondary"), [({}, (), 1), ({KEY: 4}, (), 4), ({KEY: 4}, ((f"{ZERO}{KEY}", 2),), 2)]
)
def test_a_secondary_copy_of_the_weights_takes_memory_where_the_weights_are(
    own: dict[str, int], setting: Setting, secondary: int
) -> None:
    known = spec(ds_config={"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, **own}})
    copy = 2 * 8000 / secondary if secondary > 1 else 0
    plain = replace(sharding_of(known, MODEL, 3, setting), secondary=1)
    for offload, on_device, on_host in ((NONE, copy, 0), (Offload(optimizer="cpu", param="cpu"), 0, copy)):
        without = replace(plain, offload=offload)
        full = replace(without, secondary=sharding_of(known, MODEL, 3, setting).secondary)
        assert full.device_bytes(MODEL) - without.device_bytes(MODEL) == pytest.approx(on_device)
        ranks = full.ranks_per_node
        assert full.host_bytes(MODEL) - without.host_bytes(MODEL) == pytest.approx(on_host * ranks)
    assert sharding_of(known, MODEL, 2, setting).device_bytes(MODEL) == replace(plain, stage=2).device_bytes(MODEL)
