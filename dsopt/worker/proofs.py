"""What the attempts of all workers show of the machine: whether a failure may be its, and whether it was well after."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeGuard, cast

from dsopt.experiment.outcome import Failed, Infeasible, Outcome
from dsopt.search.crashes import kind_of
from dsopt.search.history import HOST_FULL
from dsopt.store.attempts import Task
from dsopt.store.queries import Row
from dsopt.store.records import nodes_of
from dsopt.study.part import Part

_WELL: Final = ("measured", "slow")
_NOBODYS: Final = ("lost", "hardware", "taken")
_REPEATS: Final = 9
_WORDS: Final = 3  # of one node, which others have not taken up
_OF_A_NODE: Final = ("oom", "overflow", "nonfinite_loss", "invalid_config", "unsupported")  # may be its fault, too


def has_failed(outcome: Outcome) -> TypeGuard[Failed | Infeasible]:
    """Whether a run failed, or the memory of its host was full: what fits on no device is its candidate's own."""
    return isinstance(outcome, Failed) or (isinstance(outcome, Infeasible) and outcome.reason == HOST_FULL)


def proofs_needed(
    attempts: Sequence[Row],
    task: Task,
    outcome: Outcome,
    nodes: Collection[str],
    most: int,
    at_work: Collection[str] = (),
) -> int:
    """How many proofs a failed run needs before it is charged, as it may have met a fault of the machine; 0: none.

    So it is where the run says so. Once something of the study has run, it is so wherever something fails; where
    something else that says the same is known to be at fault itself, until there is one proof. What takes too long
    costs most: where that is not known, it needs proofs only if it has run before, or nothing that went well on its
    nodes has begun since something else failed for reasons unknown, there, or anywhere with the same words; or nothing
    has ever gone well there.

    Args:
        attempts: all of the study.
        task: what ran.
        outcome: what came of it.
        nodes: where it ran.
        most: after so many proofs, what fails is at fault itself.
        at_work: the nodes that work on the study.
    """
    if not has_failed(outcome) or not _is_fault(outcome.state, outcome.reason):
        return 0
    if outcome.reason == "machine":
        return most
    ended = [row for row in attempts if row["finished_at"] is not None]
    well = [row for row in ended if row["state"] in _WELL]
    if not well:
        return 0
    if any(row["candidate"] == task.name for row in well):
        return most
    faults = [row for row in ended if _is_fault(row["state"], row["reason"]) and _trial(row) != task.key]
    own = _own_faults(attempts, most, at_work)
    known = _known_kinds([row for row in faults if _trial(row) in own])
    if (kind := kind_of(outcome.message)) in known:
        return 1
    if outcome.reason != "timeout":
        return most
    here = set(nodes)
    others = [row for row in faults if _trial(row) not in own and kind_of(row["message"]) not in known]
    unknown = (row["finished_at"] for row in others if here & nodes_of(row) or kind_of(row["message"]) == kind)
    last_well = max((row["started_at"] for row in well if here <= nodes_of(row)), default=-math.inf)
    is_open = last_well == -math.inf or max(unknown, default=-math.inf) > last_well
    return most if is_open else 0


def proofs(attempts: Sequence[Row], trial: tuple[str, int]) -> int:
    """How many outages are known to have ended while this trial met faults, before its present attempt began.

    What proves that are runs that began after a fault, together on all nodes of it, and went well. The next proof is
    one after another fault, of an attempt that began after this one.

    Args:
        attempts: all of the study.
        trial: whose faults count.
    """
    present = (row["started_at"] for row in attempts_of(attempts, trial) if row["finished_at"] is None)
    return _count(_proved(attempts)[trial], next(present, math.inf))


def has_been_tried(
    attempts: Sequence[Row], trial: tuple[str, int], at_work: Collection[str], most: int, also: Collection[str] = ()
) -> bool:
    """Whether what fails has had its chance: one node may be unfit for it, such as one with less memory.

    It has if it failed, or was called infeasible, on each of the nodes, or on more than so many; or nine times as
    often, where others do not take it. A node that has begun nothing since it first failed, and runs nothing, has
    reasons of its own, and does not count.

    Args:
        attempts: all of the study.
        trial: what failed.
        at_work: the nodes that work on the study.
        most: after so many proofs, what fails is at fault itself.
        also: where it has failed just now.
    """
    said = [row["node"] for row in attempts_of(attempts, trial) if row["reason"] in _OF_A_NODE]
    return _is_tried(_faults_of(attempts, trial), _last_begun(attempts), at_work, most, [*also, *said])


def where_nobody_chooses(attempts: Sequence[Row], task: Task, most: int) -> Sequence[Row]:
    """The attempts of a study as if all nodes of an engine were one, where a task has failed on several, each apart.

    An engine that chooses nodes itself may never choose one of these again for what would prove it well. What fails on
    more than so many of them, others going well, is at fault itself; what fails on one again and again may not be.
    """
    apart: list[set[str]] = []
    present = [row for row in attempts_of(attempts, task.key) if row["finished_at"] is None]
    for nodes in map(nodes_of, [*_faults_of(attempts, task.key), *present]):
        if all(map(nodes.isdisjoint, apart)):
            apart.append(nodes)
    if len(apart) <= most:
        return attempts
    return cast("Sequence[Row]", [{**row, "devices": None} for row in attempts])


def attempts_of(attempts: Sequence[Row], trial: tuple[str, int]) -> list[Row]:
    """Those of a trial."""
    return [row for row in attempts if _trial(row) == trial]


def _faults_of(attempts: Sequence[Row], trial: tuple[str, int]) -> list[Row]:
    """Those of a trial that failed."""
    return [row for row in attempts_of(attempts, trial) if _is_fault(row["state"], row["reason"])]


def is_word_of_one(
    attempts: Sequence[Row], task: Task, outcome: Outcome, nodes: Collection[str], others: Collection[str]
) -> bool:
    """Whether nodes on which nothing of the study has gone well are the only ones to call a configuration infeasible.

    One that computes wrongly, whose memory others have, or that has other packages says so of everything; others may
    run it.

    Args:
        attempts: all of the study.
        task: what ran.
        outcome: what came of it.
        nodes: where it ran.
        others: other nodes at work on the study.
    """
    if not isinstance(outcome, Infeasible) or outcome.reason not in _OF_A_NODE or not {*others}.difference(nodes):
        return False
    if any(row["state"] in _WELL and not nodes_of(row).isdisjoint(nodes) for row in attempts):
        return False
    said = [row for row in attempts_of(attempts, task.key) if row["reason"] in _OF_A_NODE]
    # a node may have several workers, and the others may take nothing
    return all(not nodes_of(row).isdisjoint(nodes) for row in said) and len(said) < _WORDS


def failed_on(attempts: Sequence[Row], trial: tuple[str, int]) -> list[str]:
    """The nodes whose workers made the runs of a trial that failed, one for each."""
    return [row["node"] for row in _faults_of(attempts, trial)]


def failed_here_alone(attempts: Sequence[Row], trials: Collection[tuple[Part, int]], node: str) -> bool:
    """Whether some of these trials went well without this node, and none failed without it.

    Those that went well are more than those that other nodes, too, call infeasible: where memory is short, it is so on
    all.
    """
    without = [row for row in attempts if _trial(row) in trials and node not in nodes_of(row)]
    well = {_trial(row) for row in without if row["state"] in _WELL}
    infeasible = {_trial(row) for row in without if row["reason"] in _OF_A_NODE} - well
    return len(well) > len(infeasible) and not any(_is_fault(row["state"], row["reason"]) for row in without)


def _own_faults(attempts: Sequence[Row], most: int, at_work: Collection[str]) -> set[tuple[str, int]]:
    """The trials that never went well, and failed again after so many proofs, wherever they could."""
    well, faults = set[tuple[str, int]](), defaultdict[tuple[str, int], list[Row]](list)
    for row in attempts:
        if row["state"] in _WELL:
            well.add(_trial(row))
        elif _is_fault(row["state"], row["reason"]):
            faults[_trial(row)].append(row)
    proved, last_begun = _proved(attempts), _last_begun(attempts)
    return {
        trial
        for trial, of_it in faults.items()
        if trial not in well
        and _count(proved[trial], max(row["started_at"] for row in of_it)) >= most
        and _is_tried(of_it, last_begun, at_work, most)
    }


def _is_tried(
    faults: Sequence[Row],
    last_begun: Mapping[str, float],
    at_work: Collection[str],
    most: int,
    also: Collection[str] = (),
) -> bool:
    """The same for a trial with these faults."""
    on = [*(row["node"] for row in faults), *also]
    first = min((row["finished_at"] for row in faults), default=math.inf)
    begin = {node for node, at in last_begun.items() if at >= first}  # infinite: it runs something
    return begin & {*at_work} <= {*on} or len({*on}) > most or len(on) > _REPEATS * most


def _last_begun(attempts: Sequence[Row]) -> Mapping[str, float]:
    """When each node's worker has begun its last run; infinite while one goes on."""
    found: dict[str, float] = {}
    for row in attempts:
        at = math.inf if row["finished_at"] is None else row["started_at"]
        found[row["node"]] = max(at, found.get(row["node"], at))
    return found


def _proved(attempts: Sequence[Row]) -> defaultdict[tuple[str, int], list[float]]:
    """When the proofs of each trial's faults began, in their order."""
    found = defaultdict[tuple[str, int], list[float]](list)
    unproved: dict[tuple[str, int], list[set[str]]] = {}
    waiting = defaultdict[str, set[tuple[str, int]]](set)  # by the nodes of their faults
    for row in sorted((row for row in attempts if row["finished_at"] is not None), key=_known_from):
        trial, nodes = _trial(row), nodes_of(row)
        if row["state"] in _WELL:
            for one in unproved.keys() & set[tuple[str, int]]().union(*(waiting.pop(node, ()) for node in nodes)):
                unproved[one] = [fault - nodes for fault in unproved[one]]
                if not all(unproved[one]):
                    found[one].append(row["started_at"])
                    del unproved[one]
        elif _is_fault(row["state"], row["reason"]) and _count(found[trial], row["started_at"]) == len(found[trial]):
            unproved.setdefault(trial, []).append(nodes)
            for node in nodes:
                waiting[node].add(trial)
    return found


def _known_from(row: Row) -> tuple[float, bool]:
    """When an attempt shows what it shows: that the machine was well from its begin on, or not at its end."""
    is_well = row["state"] in _WELL
    return row["started_at"] if is_well else row["finished_at"], is_well


def _count(proofs: Sequence[float], began: float) -> int:
    """How many of these began before an attempt did."""
    return sum(proof <= began for proof in proofs)


def _known_kinds(faults: Sequence[Row]) -> set[str]:
    """What trials at fault themselves say, each the same in all of its runs: others have met an outage, too."""
    kinds: dict[tuple[str, int], set[str]] = {}
    for row in faults:
        kinds.setdefault(_trial(row), set()).add(kind_of(row["message"]))
    return {kind for said in kinds.values() if len(said) == 1 for kind in said}


def _is_fault(state: str, reason: str | None) -> bool:
    """Whether an attempt failed in a way that may be its candidate's, or the machine's."""
    return (state == "failed" and reason not in _NOBODYS) or (state == "infeasible" and reason == HOST_FULL)


def _trial(row: Row) -> tuple[str, int]:
    return row["stage"], row["trial"]
