"""When a worker ends before its studies are finished."""

import threading
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What others ask of a worker while it works, and what it was asked before.

    Attributes:
        stop: set to end the current runs at once; their claims are given back.
        drain: set to let the current runs end, and to begin no others.
        until_idle: whether it ends when there is nothing that it could begin, instead of waiting for other workers.
    """

    stop: threading.Event = field(default_factory=threading.Event)
    drain: threading.Event = field(default_factory=threading.Event)
    until_idle: bool = False

    @property
    def is_asked(self) -> bool:
        """Whether the worker was asked to begin nothing more."""
        return self.stop.is_set() or self.drain.is_set()
