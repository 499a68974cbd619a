"""Faults of the machine that runs tell of, such as a network that is away: no candidate is charged with them."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from dsopt.errors import DsoptError
from dsopt.experiment.outcome import Cancelled, Failed, Measured, Outcome, Slow
from dsopt.store.attempts import Task
from dsopt.store.queries import Row
from dsopt.study.part import Part
from dsopt.worker.happenings import Happening, WorkerPaused, WorkerWentOn

_Key = tuple[Part, int]
_NOWHERE: Final = frozenset([""])  # of a dry run
_FIRST_SECONDS: Final = 2.0
_LONGEST_SECONDS: Final = 120.0
_TURN_SECONDS: Final = 8.0  # in which others are begun first: an idle worker looks every five
_TOLD_FROM: Final = 3  # pauses
_MOST: Final = 10  # pauses, eight minutes in all
_MOST_WITHOUT_NEW: Final = 5  # pauses
_MOST_OF_ONE: Final = 30  # runs of one trial, as three workers one after the other have


class Outage:
    """What this worker's runs say of the machine.

    A run that meets such a fault is tried again after a pause, and others may begin meanwhile: one that begins after
    the fault where it was, and goes well, proves that the machine is well there. What fails in the same way after that
    is the candidate's own. Without a proof, once two have met a fault, nothing begins during a pause, and what is new
    begins first after it; pauses get longer, and after ten the worker ends. If others went well before, and there was
    nothing new to begin for long, what is left fails by itself.

    Args:
        tell: told when runs wait for longer, and when they go on.
    """

    def __init__(self, tell: Callable[[Happening], None]) -> None:
        self._tell = tell
        self._met: dict[_Key, str] = {}  # what has met a fault since the last proof, by name
        self._on: dict[_Key, frozenset[str]] = {}  # the nodes of the last run
        self._before: dict[_Key, frozenset[_Key]] = {}  # what had met a fault there when a run began
        self._proved: Counter[_Key] = Counter()  # how often the machine was well after a trial's fault
        self._latest: tuple[_Key, str] | None = None  # the last fault
        self._until = 0.0
        self._pauses = self._new_at = 0  # so many when the last new trial met a fault
        self._has_run_well = False

    def begun(self, task: Task, nodes: Sequence[str]) -> None:
        """Notes what begins, and on which nodes."""
        here = self._on[task.key] = frozenset(nodes) or _NOWHERE
        self._before[task.key] = frozenset(key for key in self._met if here & self._on[key])

    def note(self, task: Task, outcome: Outcome) -> None:
        """Takes in an outcome."""
        key = task.key
        before = self._before.pop(key, frozenset())
        if isinstance(outcome, Measured | Slow):
            self._has_run_well = True
            self._prove(key, before)
        elif isinstance(outcome, Failed) and outcome.reason == "machine":
            if key not in self._met:
                self._new_at = self._pauses
            self._met[key], self._latest = task.name, (key, outcome.message)
            self._pause(outcome.message)
        elif not isinstance(outcome, Cancelled):
            self._forget(key)

    def _pause(self, why: str) -> None:
        if (now := time.monotonic()) < self._until:
            return  # what fails side by side is one fault
        self._until = now + min(_LONGEST_SECONDS, _FIRST_SECONDS * 2**self._pauses)
        self._pauses += 1
        if self._pauses == _TOLD_FROM:
            self._tell(WorkerPaused(why=f"runs meet a fault of this machine, and are tried again. The last: {why}"))

    def _prove(self, by: _Key, before: frozenset[_Key]) -> None:
        found = before & self._met.keys()
        self._proved.update(found - {by})
        if not found and by not in self._met:
            return
        if self._pauses >= _TOLD_FROM:
            self._tell(WorkerWentOn())
        self._pauses, self._until = 0, 0.0
        for key in (*found, by):
            self._forget(key)

    def _forget(self, key: _Key) -> None:
        self._met.pop(key, None)
        if not self._met:
            self._pauses, self._until = 0, 0.0

    def is_own(self, task: Task, most: int, attempts: Sequence[Row]) -> bool:
        """Whether a fault that a task has met is its own, and not the machine's; if it is, nothing waits for it.

        Args:
            task: what has met it.
            most: how many runs of a trial may fail by themselves.
            attempts: of the trial, before the one that has just met it.
        """
        key, runs = task.key, 1 + sum(row["reason"] == "machine" for row in attempts)
        is_own = self._is_left_over or runs >= _MOST_OF_ONE or self._proved[key] >= max(1, most - 1)
        if is_own:
            self._forget(key)
        return is_own

    @property
    def _is_left_over(self) -> bool:
        return self._has_run_well and self._pauses >= _MOST and self._pauses - self._new_at >= _MOST_WITHOUT_NEW

    def avoids(self, trial: _Key) -> bool:
        """Whether a trial is not to be tried again now: new ones are begun first, then what waits for longer."""
        turns = (1 + (self._latest is not None and self._latest[0] == trial)) * (len(self._met) > 1)
        return trial in self._met and time.monotonic() < self._until + turns * _TURN_SECONDS

    @property
    def is_on(self) -> bool:
        """Whether nothing is to begin now."""
        return len(self._met) > 1 and time.monotonic() < self._until

    @property
    def is_waited_for(self) -> bool:
        """Whether runs wait for the machine; what others have taken meanwhile, this worker hears nothing of."""
        return bool(self._met) and time.monotonic() < self._until + _LONGEST_SECONDS

    def refuse(self, study: str) -> None:
        """Refuses to go on where nothing has gone well for minutes.

        Raises:
            DsoptError: so it is.
        """
        if self._pauses >= _MOST and not self._is_left_over and self._latest is not None:
            names = ", ".join(dict.fromkeys(self._met.values()))
            raise DsoptError(
                f"study '{study}': for minutes, runs met a fault of this machine. The last: {self._latest[1]} "
                f"They ({names}) do not count, and nothing that was recorded is lost. Mend this, then go on with: "
                f"dsopt worker {study}"
            )
