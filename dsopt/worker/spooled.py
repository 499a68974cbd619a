"""Outcomes that a lost worker has left in a run directory."""

from collections.abc import Sequence
from typing import Final

from dsopt.experiment.outcome import Failed, Measured, Outcome, Slow, from_json
from dsopt.protocol.given import read_given_json
from dsopt.protocol.run_dir import RunDir
from dsopt.store.queries import Row
from dsopt.study.folders import is_run_directory
from dsopt.study.spec import StudySpec

# a preempted worker is no candidate's fault, but a candidate that kills every worker is to blame
_MOST_LOST: Final = 12


def known_outcome(spec: StudySpec, attempts: Sequence[Row]) -> Outcome | None:
    """The outcome of a trial whose worker is gone, if it needs no other run.

    A worker writes what it measured into the run directory before it records it. If it then loses the database, or
    dies, the figures are there.
    """
    if not attempts:
        return None
    lost = sum(row["reason"] == "lost" for row in attempts)
    if attempts[-1]["reason"] == "lost" and (measured := left_by(spec, attempts[-1])) is not None:
        return measured
    if lost >= _MOST_LOST:
        return Failed(reason="lost", message=f"{lost} workers died while running it, one after the other")
    return None


def left_by(spec: StudySpec, attempt: Row) -> Measured | Slow | None:
    """What an attempt measured that the database does not know, if its folder is one of the study's."""
    run_dir = attempt["run_dir"]
    return spooled(RunDir(run_dir), attempt["id"]) if is_run_directory(spec, run_dir) else None


def spooled(run_dir: RunDir, attempt_id: str) -> Measured | Slow | None:
    """What an attempt measured whose worker could not record it; None: nothing, or not here.

    Folders of this name on other machines, and of deleted studies, hold the figures of other attempts.
    """
    try:
        content = read_given_json(run_dir.metrics)
        found = from_json(content) if content["attempt"] == attempt_id else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError):
        return None
    return found if isinstance(found, Measured | Slow) else None
