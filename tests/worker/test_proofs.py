"""Which runs prove the machine well after a fault of it, whoever has made them."""

import json

import pytest

from dsopt.study.part import REFERENCE, Part
from dsopt.worker.proofs import proofs

A, B = (Part("z1"), 1), (Part("z1"), 2)


def attempt(trial: tuple[Part, int], began: float, ended: float, state: str, *nodes: str) -> dict[str, object]:
    """One that failed met a fault of the machine."""
    return {
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
