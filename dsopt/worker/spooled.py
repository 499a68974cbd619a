"""Outcomes that a lost worker has left in a run directory, and what else is known of such a run."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from dsopt.experiment.outcome import Failed, Measured, Outcome, Slow, from_json
from dsopt.launch.outside import noted, shown_paths
from dsopt.protocol.given import read_given_json
from dsopt.protocol.run_dir import RunDir
from dsopt.store.queries import Row
from dsopt.study.folders import is_run_directory
from dsopt.study.spec import StudySpec
from dsopt.study.trial_attributes import TrialAttributes, place_attributes
from dsopt.worker.leftovers import attributes_left

# a preempted worker is no candidate's fault, but a candidate that kills every worker is to blame
_MOST_LOST: Final = 12
# a script may write there
_UNREADABLE: Final = (OSError, ValueError, KeyError, TypeError, AttributeError)


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
    with contextlib.suppress(*_UNREADABLE, AssertionError):
        found = from_json(_metrics(run_dir, attempt_id))
        return found if isinstance(found, Measured | Slow) else None
    return None


def attributes_noted(spec: StudySpec, attempt: Row) -> TrialAttributes:
    """What an attempt has left whose worker is gone, and where it was, if its folder is a study's and here."""
    if not is_run_directory(spec, attempt["run_dir"]):
        return TrialAttributes()
    run_dir = RunDir(Path(attempt["run_dir"]))
    left = noted(run_dir)
    paths = shown_paths(Path(spec.cwd), left.paths)
    return _place_of(run_dir, attempt["id"]) | attributes_left(paths, saves_in_place=left.saves_in_place)


def _place_of(run_dir: RunDir, attempt_id: str) -> TrialAttributes:
    """Where such an attempt was, and of what script; what is of another form is left out."""
    with contextlib.suppress(*_UNREADABLE):
        place = _metrics(run_dir, attempt_id).get("place", {})
        kept = {name: value for name, value in place.items() if _may_be(name, value)}
        return place_attributes(cast(TrialAttributes, kept))
    return TrialAttributes()


def _metrics(run_dir: RunDir, attempt_id: str) -> dict[str, Any]:
    """The content of the file of an attempt; empty: it is of another one."""
    content = read_given_json(run_dir.metrics)
    return cast(dict[str, Any], content) if content["attempt"] == attempt_id else {}


def _may_be(name: str, value: object) -> bool:
    return isinstance(value, str if name in ("sources", "ran_on") else float)
