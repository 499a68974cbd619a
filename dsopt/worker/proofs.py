"""What the attempts of all workers show of the machine: whether a failure may be its, and whether it was well after."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final, TypeGuard

from dsopt.experiment.outcome import Failed, Infeasible, Outcome
from dsopt.search.crashes import kind_of
from dsopt.search.history import HOST_FULL
from dsopt.store.attempts import Task
from dsopt.store.queries import Row
from dsopt.store.records import nodes_of
from dsopt.study.part import Part

_WELL: Final = ("measured", "slow")
_NOBODYS: Final = ("lost", "hardware", "taken")


def has_failed(outcome: Outcome) -> TypeGuard[Failed | Infeasible]:
    """Whether a run failed, or the memory of its host was full: what fits on no device is its candidate's own."""
    return isinstance(outcome, Failed) or (isinstance(outcome, Infeasible) and outcome.reason == HOST_FULL)


def may_be_machines(attempts: Sequence[Row], task: Task, outcome: Outcome, nodes: Collection[str], most: int) -> bool:
    """Whether a failed run may have met a fault of the machine, so that nothing is charged without a proof.

    So it is where the run says so. Once something of the study has run, it is also where something fails that has run
    before; where a run died without a word or filled the host's memory, unless something that says the same is known to
    be at fault itself, and the machine was well after an earlier death of this one; and where nothing has gone well on
    the nodes since something else failed there for reasons unknown, or ever. What is at fault itself tells the reason
    of exceptions that say the same.

    Args:
        attempts: all of the study.
        task: what ran.
        outcome: what came of it.
        nodes: where it ran.
        most: after so many proofs, what fails is at fault itself.
    """
    if not has_failed(outcome) or not _is_fault(outcome.state, outcome.reason):
        return False
    if outcome.reason == "machine":
        return True
    ended = [row for row in attempts if row["finished_at"] is not None]
    well = [row for row in ended if row["state"] in _WELL]
    if not well or any(row["candidate"] == task.name for row in well):
        return bool(well)
    faults = [row for row in ended if _is_fault(row["state"], row["reason"]) and _trial(row) != task.key]
    own = _own_faults(attempts, most)
    known = _known_kinds([row for row in faults if _trial(row) in own])
    is_known = kind_of(outcome.message) in known
    is_silent = outcome.reason == HOST_FULL or (isinstance(outcome, Failed) and outcome.retryable)
    if is_silent and not (is_known and proofs(attempts, task.key)):  # it says hardly anything, so one proof at least
        return True
    if is_known and not is_silent:
        return False
    here = set(nodes)
    others = [row for row in faults if _trial(row) not in own and (is_silent or kind_of(row["message"]) not in known)]
    unknown = (row["finished_at"] for row in others if here & nodes_of(row))
    last_well = max((row["finished_at"] for row in well if here <= nodes_of(row)), default=-math.inf)
    return max(unknown, default=-math.inf) >= last_well


def proofs(attempts: Sequence[Row], trial: tuple[str, int]) -> int:
    """How many outages are known to have ended while this trial met faults.

    What proves that is a run that began after a fault, on all nodes of it, and went well. The next proof is one after
    another fault.

    Args:
        attempts: all of the study.
        trial: whose faults count.
    """
    return _proved(attempts)[0][trial]


def attempts_of(attempts: Sequence[Row], trial: tuple[str, int]) -> list[Row]:
    """Those of a trial."""
    return [row for row in attempts if _trial(row) == trial]


def failed_here_alone(attempts: Sequence[Row], trials: Collection[tuple[Part, int]], node: str) -> bool:
    """Whether some of these trials went well without this node, and none failed without it."""
    without = [row for row in attempts if _trial(row) in trials and node not in nodes_of(row)]
    well = any(row["state"] in _WELL for row in without)
    return well and not any(_is_fault(row["state"], row["reason"]) for row in without)


def _own_faults(attempts: Sequence[Row], most: int) -> set[tuple[str, int]]:
    """The trials that never went well, and failed again after so many proofs."""
    well = {_trial(row) for row in attempts if row["finished_at"] is not None and row["state"] in _WELL}
    return {trial for trial, count in _proved(attempts)[1].items() if count >= most} - well


def _proved(attempts: Sequence[Row]) -> tuple[Counter[tuple[str, int]], Counter[tuple[str, int]]]:
    """How many proofs there are of each trial's faults, and how many came before its last fault."""
    unproved: dict[tuple[str, int], list[Row]] = {}
    count, before = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for row in sorted((row for row in attempts if row["finished_at"] is not None), key=lambda row: row["finished_at"]):
        if row["state"] in _WELL:
            now = [trial for trial, faults in unproved.items() if any(_is_proof(row, fault) for fault in faults)]
            count.update(now)
            for trial in now:
                left = [fault for fault in unproved.pop(trial) if fault["finished_at"] > row["started_at"]]
                unproved |= {trial: left} if left else {}
        elif _is_fault(row["state"], row["reason"]):
            unproved.setdefault(_trial(row), []).append(row)
            before[_trial(row)] = count[_trial(row)]
    return count, before


def _known_kinds(faults: Sequence[Row]) -> set[str]:
    """What trials at fault themselves say, each the same in all of its runs: others have met an outage, too."""
    kinds: dict[tuple[str, int], set[str]] = {}
    for row in faults:
        kinds.setdefault(_trial(row), set()).add(kind_of(row["message"]))
    return {kind for said in kinds.values() if len(said) == 1 for kind in said}


def _is_proof(well: Row, fault: Row) -> bool:
    """Whether a run that went well began after a fault, on all nodes of it."""
    return bool(fault["finished_at"] <= well["started_at"]) and nodes_of(fault) <= nodes_of(well)


def _is_fault(state: str, reason: str | None) -> bool:
    """Whether an attempt failed in a way that may be its candidate's, or the machine's."""
    return (state == "failed" and reason not in _NOBODYS) or (state == "infeasible" and reason == HOST_FULL)


def _trial(row: Row) -> tuple[str, int]:
    return row["stage"], row["trial"]
