"""What data loaders show before the first batch."""

from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from dsopt.probe.loaders import Loaders


class Endless(IterableDataset[int]):
    def __iter__(self):
        return iter(range(9))


class Hooked(DataLoader):
    """In place of PyTorch's own, which stays as it is."""


def seen(*loaders: Hooked) -> tuple[int, int]:
    found, module = Loaders(), SimpleNamespace(DataLoader=Hooked)
    found.watch(module)  # type: ignore[arg-type]
    for loader in loaders:
        assert next(iter(loader)) is not None
    del Hooked.__iter__
    return found.samples, found.ready


def test_the_largest_data_set_counts() -> None:
    few, many = TensorDataset(torch.ones(5, 2)), TensorDataset(torch.ones(100, 2))
    assert seen(Hooked(few), Hooked(many, batch_size=8), Hooked(few)) == (100, 0)
    assert seen(Hooked(many, num_workers=2, prefetch_factor=3)) == (100, 6)
    assert seen(Hooked(Endless())) == (0, 0)
    assert seen() == (0, 0)


def test_a_rank_has_its_share() -> None:
    data = TensorDataset(torch.ones(101, 2))
    sampler = DistributedSampler(data, num_replicas=4, rank=1)
    assert seen(Hooked(data, sampler=sampler)) == (26, 0)
