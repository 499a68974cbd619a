"""A caching allocator: blocks in segments, a cache of free ones, a cap, a retry, and `torch.OutOfMemoryError`.

The sizes are those of PyTorch's allocator for CUDA (c10/cuda/CUDACachingAllocator.cpp). It gives out no memory: it
tells what one that does would have reserved.
"""

from collections import deque
from dataclasses import dataclass, field

import torch

_ROUND = 512
_SMALL, _SMALL_SEGMENT = 2**20, 2 * 2**20
_MIDDLE, _MIDDLE_SEGMENT = 10 * 2**20, 20 * 2**20
_LARGE_ROUND = 2 * 2**20


@dataclass(slots=True, eq=False)
class Block:
    """A part of a segment; its neighbours there are known, so that free ones grow together."""

    size: int
    is_small: bool
    is_free: bool = True
    before: "Block | None" = None
    after: "Block | None" = None


@dataclass(slots=True)
class Allocator:
    """One device's.

    Attributes:
        capacity: bytes of the device.
        outside: bytes of them that are taken by what the allocator does not know, such as a context.
        share: what of the capacity may be reserved, as `set_per_process_memory_fraction` sets it.
    """

    capacity: int
    outside: int
    share: float = 1.0
    allocated: int = 0
    reserved: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    retries: int = 0
    out_of_memory: int = 0
    _free: set[Block] = field(default_factory=set)
    _released: "deque[Block]" = field(default_factory=deque)

    def take(self, size: int) -> Block:
        """A block for so many bytes.

        Raises:
            torch.OutOfMemoryError: none is free, and another segment would exceed the device or the cap, also after
                the cache was emptied.
        """
        self._collect()
        rounded = max(_ROUND, -(-size // _ROUND) * _ROUND)
        block = self._fitting(rounded) or self._grown(rounded)
        if block is None:
            self.retries += 1
            self.empty_cache()
            block = self._grown(rounded)
        if block is None:
            self.out_of_memory += 1
            raise torch.OutOfMemoryError(self._complaint(size))
        self._split(block, rounded)
        self._free.discard(block)
        block.is_free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def release(self, block: Block) -> None:
        """Notes a block that nobody uses any more; may be called in the midst of anything."""
        self._released.append(block)

    def empty_cache(self) -> None:
        """Gives whole free segments back."""
        self._collect()
        for block in [one for one in self._free if one.before is None and one.after is None]:
            self._free.discard(block)
            self.reserved -= block.size

    def in_use(self) -> int:
        """Bytes of the blocks in use."""
        self._collect()
        return self.allocated

    def reset_peaks(self) -> None:
        self._collect()
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved

    def _fitting(self, size: int) -> Block | None:
        is_small = size <= _SMALL
        fitting = [block for block in self._free if block.is_small == is_small and block.size >= size]
        return min(fitting, key=lambda block: block.size, default=None)

    def _grown(self, size: int) -> Block | None:
        """A new segment, if there is room."""
        segment = -(-size // _LARGE_ROUND) * _LARGE_ROUND
        if size <= _SMALL:
            segment = _SMALL_SEGMENT
        elif size < _MIDDLE:
            segment = _MIDDLE_SEGMENT
        after = self.reserved + segment
        if after > self.share * self.capacity or after + self.outside > self.capacity:
            return None
        self.reserved = after
        self.peak_reserved = max(self.peak_reserved, after)
        block = Block(segment, is_small=size <= _SMALL)
        self._free.add(block)
        return block

    def _split(self, block: Block, size: int) -> None:
        if block.size - size < (_ROUND if block.is_small else _SMALL + 1):
            return
        rest = Block(block.size - size, block.is_small, before=block, after=block.after)
        if rest.after is not None:
            rest.after.before = rest
        block.after, block.size = rest, size
        self._free.add(rest)

    def _collect(self) -> None:
        while self._released:
            block = self._released.popleft()
            self.allocated -= block.size
            block.is_free = True
            self._free.add(block)
            for first, second in ((block.before, block), (block, block.after)):
                if first is not None and second is not None and first.is_free and second.is_free:
                    self._merge(first, second)
                    block = first

    def _merge(self, first: Block, second: Block) -> None:
        first.size += second.size
        first.after = second.after
        if first.after is not None:
            first.after.before = first
        self._free.discard(second)

    def _complaint(self, size: int) -> str:
        return (
            f"CUDA out of memory. Tried to allocate {size / 2**20:.2f} MiB. GPU 0 has a total capacity of "
            f"{self.capacity / 2**30:.2f} GiB, of which {self.reserved / 2**30:.2f} GiB is reserved by PyTorch."
        )
