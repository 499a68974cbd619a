"""What data loaders show before the first batch."""

from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, TensorDataset

from dsopt.probe.loaders import Loaders


class Endless(IterableDataset[int]):
    def __iter__(self):
        return iter(range(9))


class Hooked(DataLoader):
    """In place of PyTorch's own, which stays as it is."""


class WithoutLength(Endless):
    def __len__(self) -> int:
        raise RuntimeError("who knows")


def seen(*loaders: Hooked, rows: int = 8) -> tuple[int, int]:
    found, module = Loaders(), SimpleNamespace(DataLoader=Hooked)
    found.watch(module)  # type: ignore[arg-type]
    for loader in loaders:
        assert next(iter(loader)) is not None
    del Hooked.__iter__
    return found.samples(rows), found.ready


def test_the_largest_data_set_counts() -> None:
    few, many = TensorDataset(torch.ones(5, 2)), TensorDataset(torch.ones(100, 2))
    assert seen(Hooked(few, batch_size=8), Hooked(many, batch_size=8)) == (100, 0)
    assert seen(Hooked(few, batch_size=8), rows=5) == (5, 0)  # all in one batch
    assert seen(Hooked(many, batch_size=8, num_workers=2, prefetch_factor=3)) == (100, 6)
    assert seen() == (0, 0)


def test_batches_that_were_made_before_are_no_samples() -> None:
    batches = [torch.ones(32, 2)] * 20
    assert seen(Hooked(batches, batch_size=None), rows=32) == (0, 0)
    assert seen(Hooked(batches, batch_size=1, collate_fn=lambda found: found[0]), rows=32) == (0, 0)


def test_beside_a_data_set_without_a_length_nothing_is_known() -> None:
    few = Hooked(TensorDataset(torch.ones(100, 2)), batch_size=8)
    for endless in (Endless(), WithoutLength()):
        assert seen(few, Hooked(endless, batch_size=8)) == (0, 0)


def test_samples_that_are_drawn_again_are_never_too_few() -> None:
    data = TensorDataset(torch.ones(6, 2))
    sampler = RandomSampler(data, replacement=True, num_samples=160)
    assert seen(Hooked(data, sampler=sampler, batch_size=16), rows=16) == (0, 0)


def test_a_rank_has_its_share() -> None:
    data = TensorDataset(torch.ones(101, 2))
    sampler = DistributedSampler(data, num_replicas=4, rank=1)
    assert seen(Hooked(data, sampler=sampler, batch_size=8)) == (26, 0)
