"""What data loaders show before the first batch: how many samples there are, and how many batches wait ready."""

import contextlib
import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from dsopt.probe.imports import after_import
from dsopt.probe.queues import Queues


class Loaders:
    """The data loaders of PyTorch that a script has begun to read.

    Attributes:
        ready: the most batches that workers of one read ahead.
        queues: from which a script takes what is ready.
    """

    def __init__(self) -> None:
        self.ready = 0
        self.queues = Queues()
        self._sizes: set[tuple[int, int]] = set()  # samples of a rank's share, and of a batch; 0: unknown

    def activate(self) -> None:
        """Watches the data loaders and queues of this process, once their modules are imported."""
        after_import("torch.utils.data.dataloader", self.watch)
        after_import("queue", self.queues.watch)
        after_import("multiprocessing.queues", self.queues.watch)
        after_import("multiprocessing.pool", self.queues.watch_pools)
        after_import("concurrent.futures._base", self.queues.watch_futures)

    def samples(self, rows: int) -> int:
        """A rank's share of the largest data set; 0 if it is unknown.

        Args:
            rows: of the first batch. Only a loader whose batches have as many tells samples from batches made before.
        """
        if any(not samples for samples, _ in self._sizes):
            return 0  # what trains may be the endless one
        return max((samples for samples, batch in self._sizes if rows in (samples, batch)), default=0)

    def watch(self, module: ModuleType) -> None:
        """Hooks the class from which all data loaders derive. Call it with `torch.utils.data.dataloader`."""
        original = module.DataLoader.__iter__

        @functools.wraps(original)
        def begin(loader: Any) -> Iterator[Any]:  # noqa: ANN401
            with contextlib.suppress(Exception):  # whatever a data set's own methods raise
                self._note(loader)
            return original(loader)  # type: ignore[no-any-return]

        module.DataLoader.__iter__ = begin

    def _note(self, loader: Any) -> None:  # noqa: ANN401
        self.ready = max(self.ready, (loader.num_workers or 0) * (loader.prefetch_factor or 0))
        known = self._sizes
        self._sizes = known | {(0, 0)}  # until its length is known
        if getattr(loader.sampler, "replacement", False):
            return
        samples = len(loader.dataset)
        # torch's DistributedSampler, and the shards of accelerate
        ranks = getattr(loader.sampler, "num_replicas", None) or getattr(loader.batch_sampler, "num_processes", None)
        batch = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        self._sizes = known | {(-(-samples // (ranks or 1)), batch or 0)}
