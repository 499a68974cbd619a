"""Runs one task in a lane, from its files to its outcome. Nothing here knows of a database."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsopt.errors import DsoptError
from dsopt.experiment.lane import Lane
from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Measured, Outcome, Slow
from dsopt.experiment.outside import Traces, new_traces, traces
from dsopt.experiment.run import Progress
from dsopt.launch.nvme import measure_nvme
from dsopt.launch.undone import undo
from dsopt.protocol.text import plain_text
from dsopt.study.candidate_run import run_config
from dsopt.study.ds_config import get_path, offload_devices
from dsopt.study.folders import results_folder
from dsopt.study.isolation import CLUSTERS
from dsopt.study.space import OFFLOADS, ZERO
from dsopt.study.spec import StudySpec
from dsopt.worker.assignment import Assignment
from dsopt.worker.disk import unusable
from dsopt.worker.preparing import prepare, rules_of

_measuring_disk = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What came of an assignment.

    Attributes:
        outcome: the outcome; cancelled if the run says nothing about its candidate.
        aio: the `aio` section, if it was measured for this run.
        wrote_outside: what looks like checkpoints and appeared in the working folder meanwhile.
        replaced: names of what stood in the place of the user's files when these were put back.
        error: what ended the run, if that is neither its own fault nor that of the disk of the results.
    """

    outcome: Outcome
    aio: Mapping[str, Any] | None = None
    wrote_outside: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    error: BaseException | None = None


def run(assignment: Assignment, lane: Lane, on_progress: Callable[[Progress], None]) -> Ended:
    """Runs an assignment; its processes are gone when this returns, and its result, if there is one, is on disk."""
    spec = assignment.study.spec
    try:
        ended = _run(assignment, lane, on_progress)
    except OSError as error:
        disk = unusable(results_folder(spec), error)
        return Ended(outcome=Cancelled(message=disk), error=None) if disk else Ended(outcome=Cancelled(), error=error)
    except BaseException as error:
        return Ended(outcome=Cancelled(), error=error)
    if not isinstance(ended.outcome, Failed):
        return ended
    disk = unusable(results_folder(spec), said=ended.outcome.message)
    return Ended(outcome=Cancelled(message=disk)) if disk else ended


def _run(assignment: Assignment, lane: Lane, on_progress: Callable[[Progress], None]) -> Ended:
    spec, run_dir = assignment.study.spec, assignment.run_dir
    try:
        measured, aio = _aio(assignment)
        launch = prepare(
            spec, assignment.task, assignment.candidate, run_dir, assignment.attempt, aio, assignment.placement
        )
    except DsoptError as error:  # the disk to offload to cannot be used
        return Ended(outcome=Infeasible(reason="invalid_config", message=str(error)))
    rules = rules_of(spec, assignment.task, assignment.candidate, assignment.history, assignment.nodes)
    before = _traces(spec)
    try:
        outcome = lane.run(launch, rules, on_progress)
    finally:
        run_dir.remove_own(CLUSTERS)
        undo(run_dir)
    found = new_traces(before, _traces(spec))
    if isinstance(outcome, Measured | Slow):
        with contextlib.suppress(IsADirectoryError):  # a script's own; then the figures are only in the database
            run_dir.write_json(run_dir.metrics, {"attempt": assignment.attempt.id, **outcome.to_json()})
    return Ended(
        outcome=outcome,
        aio=aio if measured else None,
        wrote_outside=tuple(plain_text(str(path.relative_to(spec.cwd))) for path in found),
        replaced=tuple(sorted({plain_text(path.name) for path in run_dir.replaced.glob("*/*")})),
    )


def _aio(assignment: Assignment) -> tuple[bool, Mapping[str, Any] | None]:
    """The `aio` section for the disk that a run offloads to, and whether it was measured now; None: it needs none."""
    spec, known = assignment.study.spec, assignment.history.aio
    config = run_config(spec, assignment.candidate)
    if "aio" in config or "nvme" not in offload_devices(config) or spec.is_simulated:
        return False, None
    if known is not None:
        return False, known
    with _measuring_disk:  # two at once would measure each other
        folder = next(path for s in OFFLOADS if (path := get_path(config, f"{ZERO}{s}.nvme_path")))
        return True, measure_nvme(Path(spec.cwd) / folder).aio


def _traces(spec: StudySpec) -> Traces:
    """What looks like a checkpoint in the working folder of a study, apart from dsopt's own files there."""
    folder = Path(spec.cwd)
    if spec.is_simulated:
        return {}
    return traces(folder, (folder / spec.results_dir, folder / spec.exps_dir))
