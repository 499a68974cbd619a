"""Ranks that stay when their run has been measured, and take over the next run of the same setting in their lane.

Such runs differ only in micro-batch size and accumulation. What a rank takes long to come by is there already: imports,
the device's context, the process group with its communicators, compiled kernels. `probe/orders.py` has what ranks are
told, `probe/parting.py` what becomes of a script that is left.
"""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from dsopt.experiment.direct import RankStart
from dsopt.experiment.events import EventReader, Parked
from dsopt.experiment.rundir import RunDir
from dsopt.experiment.warm import ForkedRank, RefusedError
from dsopt.study.space import Setting

# what runs that share ranks have in common: ZeRO stage and knobs
SharedSetting: TypeAlias = tuple[int, Setting]

_FIRST_STEPS: Final = 8  # nothing is known of a run before
_LEAST_AHEAD: Final = 2
_AHEAD_SECONDS = 0.2  # well above what events and orders take to pass
_PARTING_SECONDS = 10.0  # a new start takes little longer
_POLL_SECONDS = 0.01


class Lead:
    """How far the ranks of a run may train before they wait for more: always a little further than they are."""

    def __init__(self, ranks: Sequence[ForkedRank]) -> None:
        self.ranks = ranks
        self._until = 0
        self._order_until(_FIRST_STEPS)

    def extend(self, steps: int, step_seconds: float) -> None:
        """To be called when it is seen that so many steps have been done, the last one in this time."""
        ahead = max(_LEAST_AHEAD, math.ceil(_AHEAD_SECONDS / step_seconds))
        if self._until - steps < ahead:
            self._order_until(steps + ahead + ahead // 2)

    def end(self, steps: int, step_seconds: float) -> float | None:
        """Lets the ranks leave their script where they wait next: in so many seconds; None: too many."""
        seconds = (self._until - steps) * step_seconds
        if seconds > _PARTING_SECONDS:
            return None
        return seconds if self._order({"leave": True}) else None

    def _order_until(self, steps: int) -> None:
        self._until = steps
        self._order({"until": steps})

    def _order(self, order: Mapping[str, Any]) -> bool:
        """Tells all ranks, and whether all could be told: one that cannot waits no more, and others must not for it."""
        told = 0
        for rank in self.ranks:
            with contextlib.suppress(OSError, RefusedError):
                rank.order(order)
                told += 1
        return told == len(self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    setting: SharedSetting
    ranks: Sequence[ForkedRank]


class SharedRanks:
    """The ranks of one lane that are parked between two runs; says once why none are any more.

    Args:
        tell: told why each run is given ranks of its own from now on.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._waiting: _Waiting | None = None
        self._latest: Path | None = None
        self.is_on = True

    def take(
        self, setting: SharedSetting | None, starts: Sequence[RankStart], cwd: Path, run_dir: RunDir
    ) -> Sequence[ForkedRank] | None:
        """The parked ranks, which begin with this run; None where there are none for it. Others end."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return None
        fits = setting == waiting.setting and len(starts) == len(waiting.ranks)
        try:
            if fits and all(rank.can_become(start, cwd) for rank, start in zip(waiting.ranks, starts, strict=True)):
                for rank, start in zip(waiting.ranks, starts, strict=True):
                    rank.take_over(start, run_dir)
                self._latest = run_dir.path
                return waiting.ranks
        except (OSError, RefusedError):
            pass  # one has ended: the run is given new ones
        end(waiting.ranks)
        return None

    def has_lent(self, run_dir: RunDir) -> bool:
        """Whether the ranks of this run had measured another before."""
        return self._latest == run_dir.path

    def park(
        self, setting: SharedSetting, ranks: Sequence[ForkedRank], within_seconds: float, reader: EventReader
    ) -> bool:
        """Waits until ranks that were told to leave their script wait for the next run; False: they are to be ended."""
        deadline = time.monotonic() + within_seconds + _PARTING_SECONDS
        parked: dict[int, Parked] = {}
        while len(parked) < len(ranks):
            if any(rank.poll() is not None for rank in ranks):
                return self.give_up("a rank ended where it was to leave the script")
            if time.monotonic() > deadline:
                return self.give_up(f"a rank did not leave the script in {_PARTING_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)
            parked |= {event.rank: event for event in reader.read() if isinstance(event, Parked)}
        refusal = next((event.refusal for event in parked.values() if event.refusal), None)
        if refusal is not None:
            return self.give_up(refusal)
        self._waiting = _Waiting(setting=setting, ranks=ranks)
        return True

    def give_up(self, why: str) -> bool:
        """From now on ranks end with their run. Always False: nothing is parked."""
        if self.is_on:
            self.is_on = False
            self._tell(why)
        return False

    def close(self) -> None:
        """Ends the ranks that are parked."""
        if self._waiting is not None:
            end(self._waiting.ranks)
            self._waiting = None


def end(ranks: Sequence[ForkedRank]) -> None:
    """Ends ranks at once, with all in their sessions' process groups."""
    for rank in ranks:
        if rank.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
    for rank in ranks:
        rank.wait()
