"""The nodes that trainings have, as far as a worker can know: only a run that begins there finds out for how long."""

import math
import time
from typing import Final

_FIRST_SECONDS: Final = 120.0
_MOST_SECONDS: Final = 1800.0


class TakenNodes:
    """Nodes on which a worker begins no run for a while, since a training had devices there; each time for longer."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, float]] = {}  # by node: until when, and for how long that was

    def note(self, node: str) -> bool:
        """Notes that a training has devices of a node. Returns whether that is new."""
        until, seconds = self._until.get(node, (-math.inf, 0.0))
        if time.monotonic() < until:
            return False  # runs that began together met the same training
        is_new = time.monotonic() > until + _MOST_SECONDS
        seconds = _FIRST_SECONDS if is_new else min(2 * seconds, _MOST_SECONDS)
        self._until[node] = (time.monotonic() + seconds, seconds)
        return is_new

    @property
    def now(self) -> list[str]:
        """Those to leave alone now."""
        return [node for node, (until, _) in self._until.items() if time.monotonic() < until]
