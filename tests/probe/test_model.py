"""What a forward pass is fed."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from dsopt.probe.model import shape_of


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
