"""What a forward pass is fed."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from dsopt.probe.device import Device
from dsopt.probe.model import describe, shape_of
from dsopt.protocol.events import Engine


@dataclass
class _Batch:
    ids: torch.Tensor
    name: str = "text"


class _Nested:
    def __init__(self, inner: object) -> None:
        self.inner = inner
        self.itself = self


@pytest.mark.parametrize(
    ("inputs", "shape"),
    [
        ([torch.ones(4, 3)], (4, 12)),
        ([{"ids": torch.ones(4, 3), "mask": torch.ones(4)}], (4, 16)),
        ([_Batch(torch.ones(5, 2))], (5, 10)),
        ([_Nested([_Batch(torch.ones(5, 2))])], (5, 10)),
        ([torch.ones(4, 3), torch.ones(3, 4)], (0, 24)),
        ([[torch.ones(3, 2)] * 1 + [torch.ones(3, 2)]], (3, 12)),  # a list of pictures
        ([SimpleNamespace(shape=None), SimpleNamespace(shape=7)], (0, 0)),
        ([torch.tensor(1.0), 7, None, "text"], (0, 0)),
        ([torch.nn.Linear(2, 2)], (0, 0)),  # no batch
    ],
)
def test_the_shape_of_a_batch(inputs: list[object], shape: tuple[int, int]) -> None:
    assert shape_of(inputs) == shape


class _Device:
    """As much of a device as a description needs."""

    def capacity_bytes(self) -> int:
        return 2**30

    def name(self) -> str:
        return "made up"


def described(**changes: object) -> Engine:
    """The description of an engine whose part of the model has six parameters, two of them frozen."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False), torch.nn.Linear(2, 2, bias=False))
    module[0].weight.requires_grad = False
    engine = SimpleNamespace(
        module=module, world_size=4, bfloat16_enabled=lambda: False, fp16_enabled=lambda: False,
        zero_optimization_stage=lambda: 1, train_micro_batch_size_per_gpu=lambda: 1,
        gradient_accumulation_steps=lambda: 1, **changes,
    )  # fmt: skip
    return describe(engine, cast(Device, _Device()), 0, 0)


@pytest.mark.parametrize(
    ("mpu", "ranks"),
    [
        (None, 1),
        (SimpleNamespace(get_model_parallel_world_size=lambda: 2), 2),  # Megatron of old
        (SimpleNamespace(get_slice_parallel_world_size=lambda: 1, get_model_parallel_world_size=lambda: 4), 1),
        (SimpleNamespace(get_tensor_model_parallel_world_size=lambda: 4, get_model_parallel_world_size=lambda: 8), 4),
    ],
)
def test_parameters_of_all_ranks_that_share_layers_count(mpu: object, ranks: int) -> None:
    """The search divides by `mp_size`; a rank's own part was divided a second time."""
    found = described(mpu=mpu)
    assert (found.num_params, found.trainable_params) == (6 * ranks, 4 * ranks)
    assert found.largest_layer_params == 4  # which this rank gathers


def test_parameters_are_the_models_without_such_ranks() -> None:
    assert described().num_params == 6
