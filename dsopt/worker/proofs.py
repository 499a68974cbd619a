"""How often the machine was well after a trial had met a fault of it, by the attempts of all workers."""

from collections.abc import Sequence

from dsopt.store.queries import Row
from dsopt.store.records import nodes_of
from dsopt.study.part import Part


def proofs(attempts: Sequence[Row], trial: tuple[Part, int]) -> int:
    """How many outages are known to have ended while this trial met faults.

    What proves that is a run that began after a fault, on all nodes of it, and went well. The next proof is one after
    another fault.

    Args:
        attempts: all of the study.
        trial: whose faults count.
    """
    count, faults = 0, list[Row]()
    for row in sorted((row for row in attempts if row["finished_at"] is not None), key=lambda row: row["finished_at"]):
        if row["state"] in ("measured", "slow"):
            if any(fault["finished_at"] <= row["started_at"] and nodes_of(fault) <= nodes_of(row) for fault in faults):
                count += 1
                faults = [fault for fault in faults if fault["finished_at"] > row["started_at"]]
        elif (row["stage"], row["trial"], row["reason"]) == (*trial, "machine"):
            faults.append(row)
    return count
