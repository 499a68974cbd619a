"""What the worker says to a rank that stays when its run has been measured: how far to train, when to leave, what next.

Lines of JSON in a pipe, the same ones to each rank of a run:

    {"until": steps}                                   train up to this step boundary, and wait there for more
    {"leave": true}                                    leave the script at the boundary waited at
    {"run": {argv, environment, cwd, stdout, stderr}}  what to run next

A rank reads only where it waits. So all ranks leave at the same step, however late some of them are, and none is left
behind in a collective operation; a step that is measured costs one comparison more.
"""

import json
import os
from dataclasses import dataclass
from typing import Any


class LeaveScript(BaseException):
    """Unwinds a script from a step boundary; no `Exception`, which scripts catch."""

    left: "Left | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What the probe knows of a script that was left.

    Attributes:
        engine: a weak reference to the engine, of which nothing may be kept.
        reserved_bytes: the peak of what the run has reserved.
    """

    engine: Any
    reserved_bytes: int


class Orders:
    """A rank's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._lines = os.fdopen(descriptor, "r", encoding="utf-8")
        self._until: int | None = 0

    def at_step(self, steps: int) -> None:
        """To be called at each step boundary, with the number of steps done.

        Raises:
            LeaveScript: the run has been measured.
        """
        while self._until is not None and steps >= self._until:
            order = self._next()
            if order is None:  # nobody says anything any more: whoever ends this run does so by a signal
                self._until = None
            elif "until" in order:
                self._until = order["until"]
            else:
                raise LeaveScript

    def next_run(self) -> dict[str, Any] | None:
        """Waits for the next run; None: there is none, as the worker has no more, or is gone."""
        order = self._next()
        self._until = 0
        return order["run"] if order is not None else None

    def close(self) -> None:
        """Reads no more."""
        self._lines.close()

    def _next(self) -> dict[str, Any] | None:
        line = self._lines.readline()
        order: dict[str, Any] | None = json.loads(line) if line.endswith("\n") else None
        return order
