"""What data loaders show before the first batch: how many samples there are, and how many batches wait ready."""

import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any


class Loaders:
    """The data loaders of PyTorch that a script has begun to read.

    Attributes:
        samples: of the largest data set, the share of one rank; 0 if none has a length.
        ready: the most batches that workers of one read ahead.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.ready = 0

    def watch(self, module: ModuleType) -> None:
        """Hooks the class from which all data loaders derive. Call it with `torch.utils.data.dataloader`."""
        original = module.DataLoader.__iter__

        @functools.wraps(original)
        def begin(loader: Any) -> Iterator[Any]:  # noqa: ANN401
            self._note(loader)
            return original(loader)  # type: ignore[no-any-return]

        module.DataLoader.__iter__ = begin

    def _note(self, loader: Any) -> None:  # noqa: ANN401
        workers, ahead = getattr(loader, "num_workers", 0), getattr(loader, "prefetch_factor", None)
        self.ready = max(self.ready, (workers or 0) * (ahead or 0))
        try:
            samples = len(loader.dataset)
        except (TypeError, NotImplementedError):  # an endless one
            return
        # torch's DistributedSampler, and the shards of accelerate
        ranks = getattr(loader.sampler, "num_replicas", None) or getattr(loader.batch_sampler, "num_processes", None)
        self.samples = max(self.samples, -(-samples // (ranks or 1)))
