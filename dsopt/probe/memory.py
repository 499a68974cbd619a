"""Peak memory of one rank: torch's counters on a device, the kernel's on the CPU."""

import os
import time
from pathlib import Path
from typing import Any, Final, Protocol

from dsopt.protocol.events import EventWriter, Memory

_ASK_SECONDS: Final = 1.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM, _STATUS = Path("/proc/self/statm"), Path("/proc/self/status")


class MemoryMeter(Protocol):
    """Reads what is in use now and the peaks so far, in bytes."""

    def in_use(self) -> int: ...

    def sample(self) -> None:
        """Call it where much is in use, if nobody else keeps the peak."""
        ...

    def peaks(self) -> tuple[int, int]: ...

    def outside(self) -> int:
        """What is in use on the device beyond what torch reserved."""
        ...

    def trouble(self) -> tuple[int, int]:
        """How often the allocator gave cached blocks back to serve somebody, and how often that was not enough."""
        ...


class HostMemory:
    """On the CPU "allocated" is resident memory, and "reserved" is what RLIMIT_DATA counts: private writable memory.

    The kernel keeps no peak of the latter, so this samples it where it is high: after each pass.
    """

    def __init__(self) -> None:
        self._peak_data = 0

    def in_use(self) -> int:
        data = int(_STATM.read_text().split()[5]) * _PAGE
        self._peak_data = max(self._peak_data, data)
        return data

    def sample(self) -> None:
        self.in_use()

    def peaks(self) -> tuple[int, int]:
        self.in_use()
        return _peak_resident(), self._peak_data

    def outside(self) -> int:
        return 0

    def trouble(self) -> tuple[int, int]:
        return 0, 0


class DeviceMemory:
    """torch's own counters, which do not include the context and communication libraries."""

    def __init__(self, library: Any, index: int) -> None:  # noqa: ANN401 - such as torch.cuda
        self._library = library
        self._index = index

    def in_use(self) -> int:
        return int(self._library.memory_allocated(self._index))

    def sample(self) -> None:
        """torch keeps the peak; to ask it takes a tenth of a millisecond."""

    def peaks(self) -> tuple[int, int]:
        allocated, reserved = self._library.max_memory_allocated, self._library.max_memory_reserved
        return int(allocated(self._index)), int(reserved(self._index))

    def outside(self) -> int:
        free, total = self._library.mem_get_info(self._index)
        return max(0, int(total - free - self._library.memory_reserved(self._index)))

    def trouble(self) -> tuple[int, int]:
        told = self._library.memory_stats(self._index)
        return int(told.get("num_alloc_retries", 0)), int(told.get("num_ooms", 0))


class PeakWriter:
    """Emits a rank's memory peaks whenever they have grown, or the allocator had trouble.

    To ask for trouble takes a tenth of a millisecond, so it asks once in a second.
    """

    def __init__(self, writer: EventWriter, meter: MemoryMeter) -> None:
        self._writer = writer
        self._meter = meter
        self._last = (0, 0)
        self._trouble = (0, 0)
        self._ask_at = 0.0

    def emit(self, activation_bytes: int) -> None:
        """Call it after each step, with what a forward pass of a micro-batch left allocated."""
        peaks = self._meter.peaks()
        has_grown = any(new > 1.002 * old for new, old in zip(peaks, self._last, strict=True))
        trouble = self._trouble
        if has_grown or time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + _ASK_SECONDS
            trouble = self._meter.trouble()
        if has_grown or trouble != self._trouble:
            self._last, self._trouble = peaks, trouble
            allocated, reserved = peaks
            self._writer.emit(
                Memory(
                    rank=self._writer.rank,
                    peak_allocated_bytes=allocated,
                    peak_reserved_bytes=reserved,
                    activation_bytes=activation_bytes,
                    outside_bytes=self._meter.outside(),
                    alloc_retries=trouble[0],
                    ooms=trouble[1],
                )
            )


def _peak_resident() -> int:
    """The peak of this program alone: that of `getrusage` includes the process that started it."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
