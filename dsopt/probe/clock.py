"""Marks in time: on the host for CPU training, on the device's own timeline where launches are asynchronous."""

import time
from typing import Any, Protocol, TypeAlias

Mark: TypeAlias = Any  # float on the host, an accelerator event on a device


class Clock(Protocol):
    """Makes marks and tells the time between two of them, once both have passed."""

    def mark(self) -> Mark: ...

    def passed(self, mark: Mark) -> bool: ...

    def seconds(self, earlier: Mark, later: Mark) -> float: ...

    def wait(self) -> None: ...


class HostClock:
    """Training on the CPU is synchronous: the host's clock is the step's clock."""

    def mark(self) -> Mark:
        return time.perf_counter()

    def passed(self, mark: Mark) -> bool:  # noqa: ARG002 - every mark on the host lies in the past
        return True

    def seconds(self, earlier: Mark, later: Mark) -> float:
        return float(later - earlier)

    def wait(self) -> None:
        pass


class DeviceClock:
    """Events on the device's stream: measuring needs no synchronisation, which would itself slow the training."""

    def __init__(self, library: Any, index: int) -> None:  # noqa: ANN401 - such as torch.cuda
        self._library = library
        self._index = index

    def mark(self) -> Mark:
        event = self._library.Event(enable_timing=True)
        event.record()
        return event

    def passed(self, mark: Mark) -> bool:
        return bool(mark.query())

    def seconds(self, earlier: Mark, later: Mark) -> float:
        return float(earlier.elapsed_time(later)) / 1000

    def wait(self) -> None:
        self._library.synchronize(self._index)
