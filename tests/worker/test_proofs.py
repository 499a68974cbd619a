"""Which runs prove the machine well after a fault of it, whoever has made them."""

import json
from dataclasses import replace

import pytest

from dsopt.experiment.outcome import Failed, Infeasible, Outcome
from dsopt.store.attempts import Task
from dsopt.study.part import REFERENCE, Part
from dsopt.worker.proofs import (
    failed_here_alone,
    has_been_tried,
    is_word_of_one,
    proofs,
    proofs_needed,
    where_nobody_chooses,
)

A, B = (Part("z1"), 1), (Part("z1"), 2)


def attempt(trial: tuple[Part, int], began: float, ended: float, state: str, *nodes: str) -> dict[str, object]:
    """One that failed met a fault of the machine."""
    return {
        "id": f"{trial[1]} {began}", "message": "no network. Log: x", "candidate": f"c{trial[1]}",
        "stage": trial[0], "trial": trial[1], "state": state, "reason": "machine" if state == "failed" else None,
        "started_at": began, "finished_at": ended, "node": (nodes or ("n1",))[0],
        "devices": json.dumps({node: [0] for node in nodes}) if nodes else None,
    }  # fmt: skip


def test_each_proof_follows_a_fault_and_one_is_enough_for_several() -> None:
    seen = [attempt(A, 0, 1, "failed"), attempt(A, 2, 3, "failed"), attempt(B, 4, 5, "measured")]
    assert proofs(seen[:2], A) == 0
    assert proofs(seen, A) == 1
    assert proofs([*seen, attempt(B, 6, 7, "measured")], A) == 1
    assert proofs([*seen, attempt(A, 6, 7, "failed")], A) == 1
    both = [*seen, attempt(A, 6, 7, "failed"), attempt((REFERENCE, 4), 8, 9, "slow")]
    assert proofs(both, A) == 2
    assert proofs(both, B) == 0


def test_faults_of_one_outage_on_several_nodes_are_one() -> None:
    """Else a candidate that met it on each would be charged at its next fault."""
    seen = [attempt(A, n, n + 1, "failed", f"n{n}") for n in range(4)]
    good = [attempt(B, 10 + n, 11 + n, "measured", f"n{n}") for n in range(4)]
    assert proofs([*seen, *good], A) == 1


@pytest.mark.parametrize(
    ("began", "nodes", "state", "proves"),
    [
        (2.0, ("n1", "n2"), "measured", True),
        (2.0, ("n1", "n2", "n3"), "measured", True),
        (2.0, ("n1",), "measured", False),
        (0.5, ("n1", "n2"), "measured", False),  # it may have read its data before
        (2.0, ("n1", "n2"), "failed", False),
        (2.0, ("n1", "n2"), "infeasible", False),
        (2.0, ("n1", "n2"), "lost", False),
    ],
)
def test_a_proof_began_after_the_fault_on_all_its_nodes_and_went_well(
    began: float, nodes: tuple[str, ...], state: str, proves: bool
) -> None:
    fault = attempt(A, 0.0, 1.0, "failed", "n1", "n2")
    assert proofs([fault, attempt(B, began, 3.0, state, *nodes)], A) == proves
    assert proofs([fault, {**attempt(B, began, 3.0, state, *nodes), "finished_at": None}], A) == 0


def test_runs_that_together_cover_the_nodes_of_a_fault_prove_it_too() -> None:
    """Where an engine chooses the nodes, none may ever have all of them again."""
    fault, first = attempt(A, 0, 1, "failed", "n1", "n2", "n3"), attempt(B, 2, 3, "measured", "n1", "n4")
    assert proofs([fault, first, attempt(B, 4, 5, "measured", "n2")], A) == 0
    assert proofs([fault, first, attempt(B, 4, 5, "measured", "n2", "n3")], A) == 1
    later = attempt(A, 3.5, 3.8, "failed", "n1", "n2")  # it met another one on what had been well
    assert proofs([later, first, attempt(B, 4, 5, "measured", "n2")], A) == 0


def test_what_began_before_the_proof_may_have_met_the_same_outage() -> None:
    """It hung until then, and was charged."""
    seen = [attempt(A, 0, 1, "failed"), attempt(B, 4, 5, "measured")]
    assert proofs([*seen, {**attempt(A, 3, 0, "running"), "finished_at": None}], A) == 0
    assert proofs([*seen, {**attempt(A, 4, 0, "running"), "finished_at": None}], A) == 1
    late = [*seen, attempt(A, 3, 6, "failed"), attempt(B, 7, 8, "measured")]
    assert proofs(late, A) == 1
    assert proofs([*late, attempt(A, 6, 9, "failed"), attempt(B, 10, 11, "measured")], A) == 2


@pytest.mark.parametrize(
    ("on", "at_work", "has"),
    [
        ("1", "1", True),
        ("11", "12", False),
        ("12", "12", True),
        ("123", "1234", True),
        ("111111", "12", False),
        ("1" * 18, "12", False),
        ("1" * 19, "12", True),  # the other does not take it
        ("1", "13", True),  # nor has that begun anything
    ],
)
def test_what_fails_is_tried_on_other_nodes_before_it_is_charged(on: str, at_work: str, has: bool) -> None:
    """One that had less memory, and was free sooner, charged what another never tried."""
    failed = [attempt(A, 10 + n, 11 + n, "failed", f"n{number}") for n, number in enumerate(on)]
    going = [{**attempt(B, 5, 0, "running", f"n{n}"), "finished_at": None} for n in (1, 2)]
    lost = {**attempt(A, 0, 1, "failed", "n2"), "reason": "lost"}
    rest = [lost, attempt(B, 4, 5, "measured", "n3"), *going, attempt(B, 40, 41, "measured", "n4")]
    names = {f"n{number}" for number in at_work}
    assert has_been_tried([*rest, *failed], A, names, 2) == has
    overlapping = {**attempt(B, 10.5, 0, "running", "n2"), "finished_at": None}  # begun before it failed
    assert has_been_tried([*rest, overlapping, *failed], A, names, 2) == has
    present = {**failed[-1], "state": "running", "finished_at": None}
    assert has_been_tried([*rest, *failed[:-1], present], A, names, 2, also=[f"n{on[-1]}"]) == has


def test_where_an_engine_chooses_nodes_what_failed_on_many_is_proved_anywhere() -> None:
    """No run came to the same node again, and the worker ended. A node that fails all of its runs proves nothing."""
    task = Task(part=A[0], trial=A[1], name="c1", round=0)
    seen = [attempt(A, 0, 1, "failed", "n1"), attempt(B, 2, 3, "measured", "n4"), attempt(A, 4, 5, "failed", "n2")]
    seen = [{**row, "node": "head"} for row in [*seen, attempt(B, 6, 7, "measured", "n5")]]
    present = {**attempt(A, 8, 0, "running", "n3"), "finished_at": None, "node": "head"}
    assert proofs([*seen, present], A) == 0
    assert proofs(where_nobody_chooses([*seen, present], task, 2), A) == 2
    for nodes in (seen[0]["devices"], json.dumps({f"n{n}": [0] for n in (1, 3, 4)})):
        again = {**present, "devices": nodes}
        assert proofs(where_nobody_chooses([*seen, again], task, 2), A) == 0
    lost = {**present, "finished_at": 9, "state": "failed", "reason": "lost"}
    assert proofs(where_nobody_chooses([*seen, lost], task, 2), A) == 0


DIED = Failed(reason="crash", message="signal 9", retryable=True)
RAISED = Failed(reason="crash", message="KeyError")
LATE = Failed(reason="timeout", message="not measured")
FULL = Infeasible(reason="host_oom", message="the host's memory was full")
RAN, FELL, HERE = attempt(B, 0, 1, "measured"), attempt(B, 2, 3, "failed"), attempt(A, 4, 5, "running")


@pytest.mark.parametrize(
    ("before", "outcome", "may_be"),
    [
        ([], Failed(reason="machine", message="no network", retryable=True), True),
        ([], DIED, False),  # maybe nothing of this study runs
        ([RAN], DIED, True),
        ([], FULL, False),
        ([RAN], FULL, True),
        ([RAN], Infeasible(reason="oom", message="too large"), False),
        ([RAN], Failed(reason="hardware", message="ECC", retryable=True), False),
        ([RAN], RAISED, True),  # maybe others raise the same now
        ([RAN], LATE, False),
        ([RAN, FELL], LATE, True),
        ([RAN, {**FELL, "reason": "lost"}], LATE, False),
        ([RAN, {**FELL, "trial": A[1]}], LATE, False),  # itself
        ([RAN, FELL, attempt(B, 3, 4, "slow")], LATE, False),
        ([RAN, FELL, attempt(B, 2.5, 4, "slow")], LATE, True),  # it may have read its data before
        ([RAN, attempt(B, 2, 3, "failed", "n2")], LATE, False),
        ([RAN, {**attempt(B, 2, 3, "failed", "n2"), "message": LATE.message}], LATE, True),
        ([attempt(B, 0, 1, "measured", "n2")], LATE, True),  # nothing has run here
        ([attempt(A, 0, 1, "measured")], RAISED, True),  # it has run
    ],
)
def test_what_may_be_a_fault_of_the_machine(before: list[dict[str, object]], outcome: Outcome, may_be: bool) -> None:
    task = Task(part=A[0], trial=A[1], name="c1", round=0)
    assert proofs_needed([*before, HERE], task, outcome, ["n1"], 2) == 2 * may_be
    # in an older copy of the database, it is not there
    assert proofs_needed(before, task, outcome, ["n1"], 2) == 2 * may_be


OWN = [
    attempt(B, 2, 3, "failed"),
    attempt((REFERENCE, 5), 4, 5, "measured"),
    attempt(B, 6, 7, "failed"),
    attempt((REFERENCE, 6), 8, 9, "measured"),
    attempt(B, 10, 11, "failed"),
]
SAME = [{**row, "message": "signal 9. Log: z"} for row in OWN]
ELSE = {**attempt((Part("z2"), 1), 12, 13, "failed"), "message": "what else"}


@pytest.mark.parametrize(
    ("before", "outcome", "needed"),
    [
        (OWN, LATE, 0),
        (OWN, DIED, 2),  # that one says something else
        (SAME, replace(DIED, message="signal 9. Log: y"), 1),
        ([*SAME[:-1], OWN[-1]], replace(DIED, message="signal 9"), 2),  # met an outage, too
        (SAME, FULL, 2),
        (OWN[:2], LATE, 0),
        ([*OWN, attempt((Part("z2"), 1), 12, 13, "failed")], LATE, 0),  # it says what that one has said
        ([*OWN, ELSE], LATE, 2),
        ([*OWN, ELSE], replace(RAISED, message="no network. Log: y"), 1),
        ([*OWN, attempt(B, 12, 13, "measured")], LATE, 0),
        ([{**row, "message": LATE.message} for row in OWN], LATE, 1),
    ],
)
def test_what_is_at_fault_itself_makes_nothing_else_doubtful(
    before: list[dict[str, object]], outcome: Outcome, needed: int
) -> None:
    """Each of many such took two runs more, and a proof."""
    task = Task(part=A[0], trial=A[1], name="c1", round=0)
    ran = attempt((REFERENCE, 4), 0, 1, "measured")
    assert proofs_needed([ran, *before], task, outcome, ["n1"], 2) == needed


def test_a_node_is_bad_only_if_what_failed_there_goes_well_elsewhere() -> None:
    failed, trials = [attempt(A, 2, 3, "failed", "n1"), attempt(B, 4, 5, "failed", "n1")], [A, B]
    assert not failed_here_alone(failed, trials, "n1")
    assert not failed_here_alone([*failed, attempt((REFERENCE, 1), 4, 5, "measured", "n2")], trials, "n1")
    assert not failed_here_alone([*failed, attempt(A, 4, 5, "measured", "n1")], trials, "n1")
    good = attempt(A, 4, 5, "measured", "n2")
    assert failed_here_alone([*failed, good], trials, "n1")
    assert not failed_here_alone([*failed, good, attempt(B, 6, 7, "failed", "n2")], trials, "n1")
    short = {**attempt(B, 6, 7, "infeasible", "n2"), "reason": "oom"}
    assert not failed_here_alone([*failed, good, short], trials, "n1")  # what is too large is so on all nodes
    assert failed_here_alone(
        [*failed, good, short, attempt((Part("z2"), 1), 8, 9, "measured", "n2")], [*trials, (Part("z2"), 1)], "n1"
    )


def test_a_node_that_called_it_infeasible_has_tried_it() -> None:
    """A node that computes NaN never failed it otherwise, and what filled the others' memory was tried for ever."""
    full = [{**attempt(A, at, at + 1, "infeasible", node), "reason": "host_oom"} for at, node in ((0, "n1"), (2, "n2"))]
    busy = attempt(B, 8, 0, "running", "n3")
    seen = [*full, {**busy, "finished_at": None}]
    assert not has_been_tried(seen, A, ["n1", "n2", "n3"], 3)
    said = {**attempt(A, 4, 5, "infeasible", "n3"), "reason": "nonfinite_loss"}
    assert has_been_tried([*seen, said], A, ["n1", "n2", "n3"], 3)


NAN = Infeasible(reason="nonfinite_loss", message="the loss was NaN")


@pytest.mark.parametrize(
    ("before", "outcome", "others", "is_so"),
    [
        ([RAN], NAN, {"n2"}, False),  # something has gone well here
        ([attempt(B, 0, 1, "measured", "n2")], NAN, {"n2"}, True),
        ([], NAN, {"n2"}, True),
        ([], NAN, {"n1"}, False),  # there is nobody else
        ([], NAN, set(), False),
        ([], Infeasible(reason="oom", message="tried to allocate 1 GiB"), {"n2"}, True),
        ([], Infeasible(reason="invalid_config", message="extra inputs"), {"n2"}, True),
        ([], Infeasible(reason="fixed_batch", message="the script fed 4"), {"n2"}, False),
        ([], Infeasible(reason="predicted_oom", message="it will not fit"), {"n2"}, False),
        ([], RAISED, {"n2"}, False),
        ([{**attempt(A, 0, 1, "infeasible", "n2"), "reason": "oom"}], NAN, {"n2"}, False),  # others have said so
        ([{**attempt(A, 0, 1, "infeasible", "n1"), "reason": "oom"}], NAN, {"n2"}, True),  # another worker of the node
        ([{**attempt(A, 0, 1, "infeasible", "n1"), "reason": "oom"}] * 3, NAN, {"n2"}, False),  # nobody takes it
        ([{**attempt(A, 0, 1, "failed", "n2"), "reason": "lost"}], NAN, {"n2"}, True),  # that says nothing
    ],
)
def test_what_a_node_that_has_shown_nothing_calls_infeasible_is_asked_of_another(
    before: list[dict[str, object]], outcome: Outcome, others: set[str], is_so: bool
) -> None:
    """A GPU that computed NaN, and an older DeepSpeed, left what was the best to nobody."""
    task = Task(part=A[0], trial=A[1], name="c1", round=0)
    assert is_word_of_one([*before, HERE], task, outcome, ["n1"], others) == is_so
