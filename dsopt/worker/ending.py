"""When a worker ends before its studies are finished."""

import math
import threading
import time
from dataclasses import dataclass, field
from typing import Final

_JUST_SECONDS: Final = 60.0  # in which a script that heeds the same signal has ended


class Drain(threading.Event):
    """Set to let current runs end, and to begin no others."""

    def __init__(self) -> None:
        super().__init__()
        self._since = math.inf

    def set(self) -> None:
        """Asks for it."""
        if not self.is_set():
            self._since = time.monotonic()
        super().set()

    def was_just_set(self) -> bool:
        """Whether that is so short ago that a run which ends now may have heard the same signal."""
        return self.is_set() and time.monotonic() - self._since < _JUST_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What others ask of a worker while it works, and what it was asked before.

    Attributes:
        stop: set to end the current runs at once; their claims are given back.
        drain: as `Drain` says.
        until_idle: whether it ends when there is nothing that it could begin, instead of waiting for other workers.
    """

    stop: threading.Event = field(default_factory=threading.Event)
    drain: Drain = field(default_factory=Drain)
    until_idle: bool = False

    @property
    def is_asked(self) -> bool:
        """Whether the worker was asked to begin nothing more."""
        return self.stop.is_set() or self.drain.is_set()
