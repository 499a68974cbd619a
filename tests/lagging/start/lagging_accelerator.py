"""DeepSpeed's CPU accelerator, as one that computes while the host goes on.

Tensors are the host's, and so are their values. The time is another: each operation takes the device
`LAGGING_OP_SECONDS` after those before it, and events pass when the device has come to them. Memory is another: blocks
of an allocator with `LAGGING_GIB`.
"""

import contextlib
import os
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
from lagging_memory import Allocator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_OUTSIDE = 64 * 2**20  # what a context and communication libraries take
_MOST_AHEAD_SECONDS = 1.0  # a host waits for a queue that is full


class Timeline:
    """When the device will have done what it was given."""

    def __init__(self, op_seconds: float) -> None:
        self.op_seconds = op_seconds
        self.free_at = 0.0
        self.worked = 0.0

    def give(self) -> None:
        now = time.perf_counter()
        if self.free_at - now > _MOST_AHEAD_SECONDS:
            self.wait_for(self.free_at - _MOST_AHEAD_SECONDS)
        self.free_at = max(self.free_at, now) + self.op_seconds
        self.worked += self.op_seconds

    def mark(self) -> float:
        return max(self.free_at, time.perf_counter())

    def wait_for(self, moment: float) -> None:
        time.sleep(max(0.0, moment - time.perf_counter()))


class _Seen(TorchDispatchMode):
    """Gives every operation to the device, and every new storage a block of its memory."""

    def __init__(self, timeline: Timeline, allocator: Allocator) -> None:
        super().__init__()
        self._timeline = timeline
        self._allocator = allocator
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self._timeline.give()
        if func is torch.ops.aten._local_scalar_dense.default:
            self._timeline.wait_for(self._timeline.free_at)  # the host wants a number of the device
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
                self._hold(tensor)
        return result

    def _hold(self, tensor: torch.Tensor) -> None:
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:  # tensors of some kinds have none
            return
        if storage not in self._known and storage.nbytes():
            weakref.finalize(storage, self._allocator.release, self._allocator.take(storage.nbytes()))
            self._known.add(storage)


class Stream:
    """All work is in one queue."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def synchronize(self) -> None:
        LaggingAccelerator.instance.synchronize()

    def wait_stream(self, _: object) -> None: ...

    def wait_event(self, _: object) -> None: ...

    def record_event(self, event: "Event | None" = None) -> "Event":
        event = event or Event()
        event.record()
        return event


class Event:
    """Passes when the device has done what it had been given when it was recorded."""

    def __init__(self, enable_timing: bool = False, **_: object) -> None:
        self._is_timed = enable_timing
        self._at: float | None = None

    def record(self, _: object = None) -> None:
        self._at = LaggingAccelerator.instance.timeline.mark()

    def query(self) -> bool:
        return self._at is None or time.perf_counter() >= self._at

    def synchronize(self) -> None:
        if self._at is not None:
            LaggingAccelerator.instance.timeline.wait_for(self._at)

    def wait(self, _: object = None) -> None: ...

    def elapsed_time(self, later: "Event") -> float:
        """Milliseconds.

        Raises:
            RuntimeError: one of them has not passed, was never recorded, or keeps no time, as with CUDA.
        """
        if self._at is None or later._at is None or not (self._is_timed and later._is_timed):
            raise RuntimeError("Both events must be recorded, and with enable_timing, before calculating elapsed time.")
        if not (self.query() and later.query()):
            raise RuntimeError("CUDA error: device not ready")
        return 1000 * (later._at - self._at)


class LaggingAccelerator(CPU_Accelerator):
    """A GPU to whoever asks DeepSpeed, and also to whoever asks what `torch.cuda` would answer."""

    instance: ClassVar["LaggingAccelerator"]

    def __init__(self) -> None:
        super().__init__()
        LaggingAccelerator.instance = self
        capacity = int(float(os.environ.get("LAGGING_GIB", "1")) * 2**30)
        self.timeline = Timeline(float(os.environ.get("LAGGING_OP_SECONDS", "1e-4")))
        self.allocator = Allocator(capacity, outside=_OUTSIDE)
        _Seen(self.timeline, self.allocator).__enter__()
        torch.Tensor.record_stream = lambda *_: None  # type: ignore[method-assign] # there is one queue

    def is_synchronized_device(self) -> bool:
        return False

    def device_count(self) -> int:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return len(visible.split(",")) if visible else super().device_count()

    def synchronize(self, device_index: int | None = None) -> None:
        self.timeline.wait_for(self.timeline.free_at)

    Stream = Stream
    Event = Event

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[Stream]:
        yield stream

    def current_stream(self, device_index: int | None = None) -> Stream:
        return Stream()

    default_stream = current_stream

    def get_device_name(self, index: int | None = None) -> str:
        return "a device that lags"

    def empty_cache(self) -> None:
        self.allocator.empty_cache()

    def memory_allocated(self, device_index: int | None = None) -> int:
        return self.allocator.in_use()

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return self.allocator.peak_allocated

    def memory_reserved(self, device_index: int | None = None) -> int:
        return self.allocator.reserved

    def max_memory_reserved(self, device_index: int | None = None) -> int:
        return self.allocator.peak_reserved

    memory_cached, max_memory_cached = memory_reserved, max_memory_reserved

    def memory_stats(self, device_index: int | None = None) -> dict[str, int]:
        return {
            "allocated_bytes.all.current": self.allocator.in_use(),
            "allocated_bytes.all.peak": self.allocator.peak_allocated,
            "reserved_bytes.all.current": self.allocator.reserved,
            "reserved_bytes.all.peak": self.allocator.peak_reserved,
            "num_alloc_retries": self.allocator.retries,
            "num_ooms": self.allocator.out_of_memory,
        }

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        self.allocator.reset_peaks()

    reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats

    def total_memory(self, device_index: int | None = None) -> int:
        return self.allocator.capacity

    def available_memory(self, device_index: int | None = None) -> int:
        return self.mem_get_info()[0]

    def mem_get_info(self, index: int | None = None) -> tuple[int, int]:
        """What is free and all there is, in bytes."""
        taken = self.allocator.reserved + self.allocator.outside
        return self.allocator.capacity - taken, self.allocator.capacity

    def set_per_process_memory_fraction(self, share: float, index: int | None = None) -> None:
        self.allocator.share = share
