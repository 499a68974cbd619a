"""Whose fault a failed run is: the candidate's, or that of the node it ran on."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from dsopt.errors import DsoptError
from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Outcome
from dsopt.search.history import BASELINE, HOST_FULL
from dsopt.store.attempts import Task
from dsopt.store.queries import Row
from dsopt.study.part import REFERENCE, Part

_NOT_COUNTED: Final = ("lost", "hardware", "taken", "machine")  # nobody's attempts
_OF_THE_BASELINE: Final = 2  # starts that an exception may end
_SUSPECT: Final = 3  # so many different candidates in a row
# what ranks have said, or a node; only runs that die without a word make a node suspect
_TOLD: Final = ("hardware", "machine", "taken")
_REPEATS: Final = 3
_MOST_CANCELLED: Final = 5  # runs of one candidate in one round, for the same reason
_AVOIDED_SECONDS: Final = 60.0  # and as long as a run took: then, a node that takes none has reasons of its own
# reasons beside a run, as sentences
_BESIDE: Final = {
    "suspended": (
        "were suspended with this worker",
        "Let this worker run without breaks, as on a node of its own",
    ),
    "removed": (
        "lost their folder while they went on",
        "Find out what removes folders in the results folder, such as the script or its launcher, and let it not",
    ),
    "shared": (
        "met other programs on their GPUs",
        "Let dsopt have them for itself, or give the worker others with --devices",
    ),
    "no_room": (
        "failed while the disk of the results was full, which has room again",
        "If it is the script that fills it, let it write less, or make more room",
    ),
}
Verdict = Literal["tell", "again", "elsewhere"]


@dataclass(slots=True)
class NodeHealth:
    """What this worker's runs say of its node: those that died without a word, since the last one that did not.

    Attributes:
        died: the tasks of the runs that died.
    """

    died: list[Task] = field(default_factory=list)
    _avoided: dict[tuple[Part, int], float] = field(default_factory=dict)  # until when
    _cancelled: Counter[tuple[str, Part, str, int]] = field(default_factory=Counter)  # each run is another trial

    def note(self, task: Task, outcome: Outcome, *, is_fault: bool) -> None:
        """Takes in the outcome of a run on this node; `is_fault`: whether it may be the machine's."""
        if isinstance(outcome, Cancelled):
            self._cancelled[outcome.reason, task.part, task.name, task.round] += 1
        if isinstance(outcome, Cancelled) or (isinstance(outcome, Failed) and outcome.reason in _TOLD):
            return
        if is_fault or (isinstance(outcome, Failed) and outcome.retryable):
            self.died.append(task)
        else:
            self.died.clear()

    def avoid(self, task: Task, attempts: Sequence[Row]) -> None:
        """Leaves a task to other nodes until what they run is over; `attempts`: all of the study."""
        seconds = (row["finished_at"] - row["started_at"] for row in attempts if row["state"] in ("measured", "slow"))
        longest = max(seconds, default=0.0)
        self._avoided[task.key] = time.monotonic() + _AVOIDED_SECONDS + longest

    def avoids(self, trial: tuple[Part, int]) -> bool:
        """Whether a trial should still be left to other nodes, if there are any."""
        return time.monotonic() < self._avoided.get(trial, -math.inf)

    def refuse_repeats(self, study: str, task: Task) -> None:
        """Refuses to try a candidate again and again whose runs all end for the same reason beside them.

        Raises:
            DsoptError: so many of them did.
        """
        for reason, (what, advice) in _BESIDE.items():
            if (times := self._cancelled[reason, task.part, task.name, task.round]) >= _MOST_CANCELLED:
                raise DsoptError(
                    f"study '{study}': {times} runs of {task.name} {what}, so that none could be measured. Nothing "
                    f"that was recorded is lost. {advice}, then go on with: dsopt worker {study}"
                )

    @property
    def is_suspect(self) -> bool:
        """Whether runs of three different candidates have died here, one after the other."""
        return len({(task.part, task.name) for task in self.died if task.part != REFERENCE}) >= _SUSPECT


def may_be_chance(task: Task, outcome: Outcome) -> bool:
    """Whether the same run may go well: it died without an exception, or it is the first of the study.

    Nothing has shown by then that the script runs at all, and without the user's own configuration there is no factor.
    """
    is_first = (task.name, task.round) == (BASELINE, 0)
    if not isinstance(outcome, Failed):
        return isinstance(outcome, Infeasible) and outcome.reason == HOST_FULL and is_first
    return outcome.retryable or (outcome.reason == "crash" and is_first)


def verdict(
    outcome: Failed | Infeasible, attempts: Sequence[Row], most: int, *, node: str, others_live: bool
) -> Verdict:
    """What follows from a run that died without an exception of the script's: it may be the node's fault.

    It is tried again, on another node if one works on the study, until it has died `most` times. A GPU's own fault
    does not count, unless runs of one candidate have met it on several; a training on the node never does. One that
    raised an exception, as `may_be_chance` allows, is tried once more.

    Args:
        outcome: what came of it.
        attempts: of the trial, before the one that has just died.
        most: how many attempts may die; while others live, one counts for each node, up to three times as many in all.
        node: this one.
        others_live: whether a worker of another node works on the study.
    """
    faults = sum(row["reason"] == "hardware" for row in attempts)
    counted = ("failed", "infeasible")
    on = [row["node"] for row in attempts if row["state"] in counted and row["reason"] not in _NOT_COUNTED]
    may_die = isinstance(outcome, Failed) and outcome.retryable
    died, most = 1 + len(on), most if may_die else _OF_THE_BASELINE
    if others_live and died < _REPEATS * most:
        died = len({*on, node})
    if outcome.reason != "taken" and ((died >= most and outcome.reason not in _NOT_COUNTED) or faults >= _SUSPECT):
        return "tell"
    return "elsewhere" if others_live else "again"


def why_set_aside(died: Sequence[Task], node: str, last: str) -> str:
    """Why a node takes no more part, as sentences."""
    names = ", ".join(dict.fromkeys(task.name for task in died))
    return (
        f"runs of {names} died on {node}, or could not be done there, one after another, though others can. So this "
        f"node is set aside, and other nodes try them again. The last: {last} Mend the node, or see whether it has "
        "less memory or other packages; then start the worker again."
    )
