"""Faults of the machine that runs tell of, such as a network that is away: no candidate is charged without a proof."""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeGuard

from dsopt.errors import DsoptError
from dsopt.experiment.outcome import Cancelled, Failed, Measured, Outcome, Slow
from dsopt.store.attempts import Task
from dsopt.study.part import Part
from dsopt.worker.happenings import Happening, WorkerPaused, WorkerWentOn

_Key = tuple[Part, int]
_CHARGES: Final = "DSOPT_CHARGE_FAULTS"  # `1`: the user says that candidates themselves are at fault
_NOWHERE: Final = frozenset([""])  # of a dry run
_FIRST_SECONDS: Final = 2.0
_LONGEST_SECONDS: Final = 120.0
_TURN_SECONDS: Final = 8.0  # in which others are begun first: an idle worker looks every five
_TOLD_FROM: Final = 3  # pauses
_MOST: Final = 10  # pauses, eight minutes in all


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """What a run met: the how manieth of all, and of the trial since the last proof; its name, and where it was."""

    number: int
    times: int
    name: str
    nodes: frozenset[str]


class Outage:
    """What this worker's runs say of the machine.

    A run that meets such a fault is tried again after a pause, and others may begin meanwhile: one that begins after
    the fault on the same nodes, and goes well, proves that the machine is well there. What fails in the same way after
    that is the candidate's own. Without a proof nothing is charged: once two have met a fault, nothing begins during a
    pause, and what is new begins first after it; pauses get longer, and after ten the worker ends.

    Args:
        tell: told when runs wait for longer, and when they go on.
    """

    def __init__(self, tell: Callable[[Happening], None]) -> None:
        self._tell = tell
        self._met: dict[_Key, _Fault] = {}  # the last fault of what has met one since the last proof
        self._on: dict[_Key, frozenset[str]] = {}  # the nodes of runs that go on
        self._before: dict[_Key, Mapping[_Key, int]] = {}  # the numbers of faults there when they began
        self._proved: Counter[_Key] = Counter()  # how often the machine was well after a trial's fault
        self._faults = self._pauses = 0
        self._last = ""
        self._until = 0.0

    def begun(self, task: Task, nodes: Sequence[str]) -> None:
        """Notes what begins, and on which nodes."""
        here = self._on[task.key] = frozenset(nodes) or _NOWHERE
        self._before[task.key] = {key: fault.number for key, fault in self._met.items() if fault.nodes <= here}

    def note(self, task: Task, outcome: Outcome) -> None:
        """Takes in an outcome."""
        key = task.key
        nodes, before = self._on.pop(key, _NOWHERE), self._before.pop(key, {})
        if isinstance(outcome, Measured | Slow):
            self._went_well(key, before)
        elif _is_of_machine(outcome):
            self._faults += 1
            times = 1 + (self._met[key].times if key in self._met else 0)
            self._met[key] = _Fault(number=self._faults, times=times, name=task.name, nodes=nodes)
            self._last = outcome.message
            self._pause()
        elif not isinstance(outcome, Cancelled):
            self._forget(key)

    def _pause(self) -> None:
        if (now := time.monotonic()) < self._until:
            return  # what fails side by side is one fault
        self._until = now + min(_LONGEST_SECONDS, _FIRST_SECONDS * 2**self._pauses)
        self._pauses += 1
        if self._pauses == _TOLD_FROM:
            why = f"runs meet a fault of this machine, and are tried again. The last: {self._last}"
            self._tell(WorkerPaused(why=why))

    def _went_well(self, by: _Key, before: Mapping[_Key, int]) -> None:
        """Takes in a run that proves the machine well where it was, if the last fault there came before it."""
        if self._pauses >= _TOLD_FROM:
            self._tell(WorkerWentOn())
        self._pauses = 0
        found = [key for key, number in before.items() if key in self._met and self._met[key].number == number]
        self._proved.update(key for key in found if key != by)
        if found or by in self._met:
            self._until = 0.0
        for key in (*found, by):
            self._forget(key)

    def _forget(self, key: _Key) -> None:
        self._met.pop(key, None)
        if not self._met:
            self._pauses, self._until = 0, 0.0

    def is_own(self, task: Task, most: int) -> bool:
        """Whether a fault that a task has met is its own, and not the machine's; if it is, nothing waits for it.

        Args:
            task: what has met it.
            most: how many runs of a trial may fail by themselves.
        """
        is_own = _user_charges() or self._proved[task.key] >= max(1, most - 1)
        if is_own:
            self._forget(task.key)
        return is_own

    def most(self, outcome: Outcome, most: int) -> int:
        """How many runs of a trial may fail so: where the user says whose fault it is, one."""
        return 1 if _is_of_machine(outcome) and _user_charges() else most

    def avoids(self, trial: _Key) -> bool:
        """Whether a trial is not to be tried again now: new ones are begun first, then what waits for longest.

        From its second fault on, nor while a run goes on that may prove something of the last: one that is tried again
        and again within seconds would have failed again during each of minutes.
        """
        if (fault := self._met.get(trial)) is None:
            return False
        if fault.times > 1 and any(before.get(trial) == fault.number for before in self._before.values()):
            return True
        waits_longest = all(fault.number <= other.number for other in self._met.values())
        turns = (1 if waits_longest else 2) * (len(self._met) > 1)
        return time.monotonic() < self._until + turns * _TURN_SECONDS

    @property
    def is_on(self) -> bool:
        """Whether nothing is to begin now."""
        return len(self._met) > 1 and time.monotonic() < self._until

    @property
    def is_waited_for(self) -> bool:
        """Whether runs wait for the machine; what others have taken meanwhile, this worker hears nothing of."""
        return bool(self._met) and time.monotonic() < self._until + _LONGEST_SECONDS

    def refuse(self, study: str) -> None:
        """Refuses to go on where nothing has gone well for minutes, and nothing goes on that may.

        Raises:
            DsoptError: so it is.
        """
        if self._pauses >= _MOST and self._on.keys() <= self._met.keys():
            names = ", ".join(dict.fromkeys(fault.name for fault in self._met.values()))
            raise DsoptError(
                f"study '{study}': for minutes, runs met a fault of this machine. The last: {self._last} "
                f"They ({names}) do not count, and nothing that was recorded is lost. Mend this, then go on with: "
                f"dsopt worker {study} (if they are at fault themselves: {_CHARGES}=1 dsopt worker {study})"
            )


def _is_of_machine(outcome: Outcome) -> TypeGuard[Failed]:
    return isinstance(outcome, Failed) and outcome.reason == "machine"


def _user_charges() -> bool:
    return os.environ.get(_CHARGES) == "1"
