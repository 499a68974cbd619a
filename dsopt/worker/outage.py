"""Faults that may be the machine's, such as a network that is away: no candidate is charged without a proof."""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dsopt.errors import DsoptError
from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Measured, Outcome, Slow
from dsopt.store.attempts import Task
from dsopt.study.part import REFERENCE, Part
from dsopt.worker.happenings import Happening, WorkerPaused, WorkerWentOn

_Key = tuple[Part, int]
_CHARGES: Final = "DSOPT_CHARGE_FAULTS"  # `1`: the user says that candidates themselves are at fault
_NOWHERE: Final = frozenset([""])  # of a dry run
_FIRST_SECONDS: Final = 2.0
_LONGEST_SECONDS: Final = 120.0
_TURN_SECONDS: Final = 8.0  # in which others are begun first: an idle worker looks every five
_AHEAD: Final = 4  # times that a proof may fail more often than what waits, and still comes first
_TOLD_FROM: Final = 3  # pauses
_MOST: Final = 10  # pauses, eight minutes in all


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """What a run met: the how manieth of all; its name, and the nodes where it was and nothing has gone well since."""

    number: int
    name: str
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A run in hand: where it is, how many faults had been met when it began, the last of each trial there, and whether
    its engine stands."""

    nodes: frozenset[str]
    faults: int
    before: Mapping[_Key, int]
    stands: bool = False


_NOTHING: Final = _Begun(nodes=_NOWHERE, faults=0, before={})  # of a run whose trial another lane has begun anew


class Outage:
    """What this worker's runs say of the machine.

    A run that meets such a fault is tried again after a pause, and others may begin meanwhile: one that begins after
    the fault on the same nodes, and goes well, proves that the machine is well there. What fails in the same way after
    each of several proofs is the candidate's own; without them, nothing is charged.

    Where two have met a fault and nothing has gone well since, runs begin one at a time, after pauses that get longer:
    first one of what has run before, as a proof, and again if that failed; then what waits, what has failed least often
    first; once each has failed twice, something else. The next may begin when the engine of the one before stands.
    After ten pauses nothing begins, and the worker ends with its last run.

    Args:
        tell: told when runs wait for longer, and when they go on.
    """

    def __init__(self, tell: Callable[[Happening], None]) -> None:
        self._tell = tell
        self._met: dict[_Key, _Fault] = {}  # the last fault of what has met one since the last proof
        self._begun: dict[_Key, _Begun] = {}
        self._times: Counter[_Key] = Counter()  # how often a trial has met one
        self._unsaid: set[_Key] = set()  # trials whose runs do not say that it was the machine
        self._faults = self._pauses = 0
        self._last = ""
        self._until = 0.0

    def begun(self, task: Task, nodes: Sequence[str]) -> None:
        """Notes what begins, and on which nodes."""
        here = frozenset(nodes) or _NOWHERE
        before = {key: fault.number for key, fault in self._met.items() if fault.nodes & here}
        self._begun[task.key] = _Begun(nodes=here, faults=self._faults, before=before)

    def stands(self, task: Task) -> None:
        """Notes that the engine of a run stands: it has met nothing until then."""
        if (run := self._begun.get(task.key)) is not None:
            self._begun[task.key] = replace(run, stands=True)

    def note(self, task: Task, outcome: Outcome, *, is_fault: bool) -> None:
        """Takes in an outcome; `is_fault`: whether it may be the machine's."""
        key = task.key
        run = self._begun.pop(key, _NOTHING)
        if isinstance(outcome, Measured | Slow):
            self._went_well(key, run)
        elif is_fault and isinstance(outcome, Failed | Infeasible):
            self._faults += 1
            self._times[key] += 1
            if outcome.reason != "machine":
                self._unsaid.add(key)
            self._met[key] = _Fault(number=self._faults, name=task.name, nodes=run.nodes)
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
            why = f"runs fail as if this machine were at fault, and are tried again. The last: {self._last}"
            self._tell(WorkerPaused(why=why))

    def _went_well(self, by: _Key, run: _Begun) -> None:
        """Takes in a run that proves the machine well where it was, if the last fault there came before it."""
        if self._pauses >= _TOLD_FROM:
            self._tell(WorkerWentOn())
        self._pauses = 0
        there = [key for key, number in run.before.items() if key in self._met and self._met[key].number == number]
        for key in there:
            self._met[key] = replace(self._met[key], nodes=self._met[key].nodes - run.nodes)
        found = [key for key in there if not self._met[key].nodes]
        if found or by in self._met:
            self._until = 0.0
        for key in (*found, by):
            self._forget(key)

    def _forget(self, key: _Key) -> None:
        self._met.pop(key, None)
        if not self._met:
            self._pauses, self._until = 0, 0.0

    def is_own(self, task: Task, proofs: int, most: int) -> bool:
        """Whether a fault that a task has met is its own, and not the machine's; if it is, nothing waits for it.

        Args:
            task: what has met it.
            proofs: how often the machine was well after it had met one.
            most: after so many it is: one more run than may die by chance, as outages end and come back.
        """
        is_own = proofs >= most or os.environ.get(_CHARGES) == "1"
        if is_own:
            self._forget(task.key)
        return is_own

    def avoids(self, trial: _Key) -> bool:
        """Whether a trial is not to be tried again now.

        Where it needs a proof, nor while a run goes on that may be one: what is tried again and again within seconds
        would have failed again during each of minutes.
        """
        if (fault := self._met.get(trial)) is None:
            return False
        if self._needs_proof(trial) and any(run.before.get(trial) == fault.number for run in self._begun.values()):
            return True
        is_first = trial == min(self._met, key=self.rank)
        turns = (self._is_for_others + (not is_first)) * self.is_shared
        return time.monotonic() < self._until + turns * _TURN_SECONDS

    def rank(self, trial: _Key) -> tuple[int, int]:
        """What has a lower one comes first: a proof, which has gone well before, then what failed least often."""
        fault = self._met.get(trial)
        return self._times[trial] - _AHEAD * (trial[0] == REFERENCE), fault.number if fault is not None else 0

    def keep(self, trials: Collection[_Key]) -> None:
        """Forgets what is none of these trials, which are not over: others have told what came of it."""
        for trial in [trial for trial in self._met if trial not in trials]:
            self._forget(trial)

    def _needs_proof(self, trial: _Key) -> bool:
        """Whether it has failed twice, or without saying that it was the machine."""
        return self._times[trial] > 1 or trial in self._unsaid

    @property
    def avoids_others(self) -> bool:
        """Whether nothing is to begin now but what waits for the machine."""
        is_turn = time.monotonic() < self._until + _TURN_SECONDS
        return self.is_shared and not self._is_for_others and is_turn

    @property
    def is_shared(self) -> bool:
        """Whether several have met a fault since something went well."""
        return len(self._met) > 1

    @property
    def _is_for_others(self) -> bool:
        """Whether each that waits has failed twice, so that something else has its turn first."""
        return all(self._times[trial] > 1 for trial in self._met)

    @property
    def unproved_on(self) -> Sequence[str] | None:
        """The nodes of what needs a proof, if nothing goes on that may be one: of what failed twice, or of several."""
        waits = (fault for trial, fault in self._met.items() if self.is_shared or self._needs_proof(trial))
        return None if self._begun else next((sorted(fault.nodes) for fault in waits), None)

    @property
    def waiting(self) -> set[str]:
        """The names of what waits for a proof."""
        return {fault.name for fault in self._met.values()}

    @property
    def is_on(self) -> bool:
        """Whether nothing is to begin now."""
        if self._pauses >= _MOST:
            return True
        # by what began after the last fault
        is_tried = any(run.faults == self._faults and not run.stands for run in self._begun.values())
        return self.is_shared and (is_tried or time.monotonic() < self._until)

    @property
    def is_waited_for(self) -> bool:
        """Whether runs wait for the machine; what others have taken meanwhile, this worker hears nothing of."""
        return bool(self._met) and time.monotonic() < self._until + _LONGEST_SECONDS

    def refuse(self, study: str) -> None:
        """Refuses to go on where nothing has gone well for minutes, and nothing goes on that may.

        Raises:
            DsoptError: so it is.
        """
        if self._pauses >= _MOST and not self._begun:
            names = ", ".join(dict.fromkeys(fault.name for fault in self._met.values()))
            raise DsoptError(
                f"study '{study}': for minutes, runs failed as if this machine were at fault. The last: {self._last} "
                f"They ({names}) do not count, and nothing that was recorded is lost. Mend this, then go on with: "
                f"dsopt worker {study} (if they are at fault themselves: {_CHARGES}=1 dsopt worker {study})"
            )
