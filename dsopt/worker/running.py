"""Runs one task in a lane, from its files to its outcome. Nothing here knows of a database."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dsopt.errors import DsoptError, Interrupted
from dsopt.experiment.lane import Lane
from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Measured, Outcome, Slow
from dsopt.experiment.run import Progress, removed
from dsopt.launch.nvme import ROOM_BYTES, measure_nvme
from dsopt.launch.outside import note_before, noted, shown_paths, still_left
from dsopt.launch.passing import PassingError
from dsopt.launch.strangers import Visits
from dsopt.launch.tidied import tidy_left
from dsopt.launch.undone import undo
from dsopt.protocol.text import plain_text
from dsopt.study.candidate_run import run_config
from dsopt.study.ds_config import get_path, offload_devices
from dsopt.study.isolation import CLUSTERS
from dsopt.study.space import OFFLOADS, ZERO
from dsopt.worker.assignment import Assignment
from dsopt.worker.disk import unusable
from dsopt.worker.preparing import prepare, rules_of

_LOOK_SECONDS: Final = 0.2
_MOST_LEFT: Final = 20  # paths that each trial names of earlier runs
_measuring_disk = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What came of an assignment.

    Attributes:
        outcome: the outcome; cancelled if the run says nothing about its candidate.
        aio: the `aio` section, if it was measured for this run.
        wrote_outside: what looks like checkpoints and appeared in the working folder meanwhile.
        left_before: the same of earlier runs of this folder, whoever interrupted them, that is still there.
        replaced: names of what stood in the place of the user's files when these were put back.
        saves_in_place: whether a run beside it would save to the same files (`launch/in_place.py`).
        error: what ended the run, if that is neither its own fault nor that of the disk of the results.
        lacks: a folder to offload to, whose disk takes no files now.
    """

    outcome: Outcome
    aio: Mapping[str, Any] | None = None
    wrote_outside: tuple[str, ...] = ()
    left_before: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    saves_in_place: bool = False
    error: BaseException | None = None
    lacks: Path | None = None


def run(assignment: Assignment, lane: Lane, on_progress: Callable[[Progress], None]) -> Ended:
    """Runs an assignment; its processes are gone when this returns, and its result, if there is one, is on disk."""
    results = assignment.run_dir.path.parent
    lacked_room: list[str] = []

    def look(progress: Progress) -> None:
        if not lacked_room and (why := unusable(results)) is not None:
            lacked_room.append(why)
        on_progress(progress)

    try:
        ended = _run(assignment, lane, look)
    except OSError as error:
        if (disk := unusable(results, error)) is not None:
            return Ended(outcome=Cancelled(message=disk))
        gone = removed(assignment.run_dir.path)
        return Ended(outcome=gone) if gone is not None else Ended(outcome=Cancelled(), error=error)
    except BaseException as error:
        return Ended(outcome=Cancelled(), error=error)
    if not isinstance(ended.outcome, Failed):
        return ended
    if (disk := unusable(results, said=ended.outcome.message)) is not None:
        return Ended(outcome=Cancelled(message=disk))
    if lacked_room:  # meanwhile, so that its log and what it told may be lost
        return Ended(outcome=Cancelled(message=lacked_room[0], reason="no_room"))
    return ended


def _run(assignment: Assignment, lane: Lane, on_progress: Callable[[Progress], None]) -> Ended:
    spec, run_dir = assignment.study.spec, assignment.run_dir
    try:
        measured, aio = _aio(assignment, lane)
        launch = prepare(assignment, aio)
    except Interrupted:
        return Ended(outcome=Cancelled())
    except DsoptError as error:  # the disk to offload to cannot be used
        return _not_offloaded(assignment, error)
    is_here = not spec.is_simulated and assignment.placement is None
    visits = Visits(assignment.strangers, assignment.attempt.devices.indices if is_here else ())
    sources: Mapping[str, str] = {}

    def look(progress: Progress) -> None:
        nonlocal sources
        sources = progress.sources
        visits.look()
        on_progress(progress)

    rules = rules_of(spec, assignment.task, assignment.candidate, assignment.history, assignment.nodes)
    if not spec.is_simulated:
        folder = Path(spec.cwd)
        tidy_left(run_dir.path.parent)
        note_before(run_dir, folder, (folder / spec.results_dir, folder / spec.exps_dir))
    try:
        outcome = lane.run(launch, rules, look)
    finally:
        run_dir.remove_own(CLUSTERS)
        undo(run_dir)
    outcome = _undisturbed(outcome, visits)
    left = noted(run_dir)
    if isinstance(outcome, Measured | Slow):
        with contextlib.suppress(IsADirectoryError):  # a script's own; then the figures are only in the database
            of_run = {"attempt": assignment.attempt.id, "place": assignment.place(sources)}
            run_dir.write_json(run_dir.metrics, {**of_run, **outcome.to_json()})
    return Ended(
        outcome=outcome,
        aio=aio if measured else None,
        wrote_outside=shown_paths(Path(spec.cwd), left.paths),
        left_before=shown_paths(Path(spec.cwd), still_left(run_dir.path.parent))[:_MOST_LEFT],
        saves_in_place=left.saves_in_place,
        replaced=tuple(sorted({plain_text(path.name) for path in run_dir.replaced.glob("*/*")})),
    )


def _undisturbed(outcome: Outcome, visits: Visits) -> Outcome:
    """The outcome, unless it may come from others who were on the run's GPUs: its time, its memory, its end."""
    is_touched = isinstance(outcome, Measured | Slow | Failed) or outcome.reason == "oom"
    if not is_touched or not (others := visits.at_the_end()):
        return outcome
    return Cancelled(message=f"{others}, too: what the run showed may be theirs", reason="shared")


def _not_offloaded(assignment: Assignment, error: DsoptError) -> Ended:
    """What follows if the disk to offload to cannot be used: only what is so each time is the configuration's fault.

    A disk on which a run of the study has offloaded is one that can be used.
    """
    folder, message = _offload_folder(assignment), str(error)
    if folder.is_dir() and (why := unusable(folder, room_bytes=ROOM_BYTES)) is not None:
        return Ended(outcome=Cancelled(message=why), lacks=folder)
    if isinstance(error, PassingError) or assignment.history.aio is not None:
        return Ended(outcome=Failed(reason="machine", message=message, retryable=True))
    return Ended(outcome=Infeasible(reason="invalid_config", message=message))


def _offload_folder(assignment: Assignment) -> Path:
    config = run_config(assignment.study.spec, assignment.candidate)
    given = next(path for section in OFFLOADS if (path := get_path(config, f"{ZERO}{section}.nvme_path")))
    return Path(assignment.study.spec.cwd, given)


def _aio(assignment: Assignment, lane: Lane) -> tuple[bool, Mapping[str, Any] | None]:
    """The `aio` section for the disk that a run offloads to, and whether it was measured now; None: it needs none."""
    spec, known = assignment.study.spec, assignment.history.aio
    config = run_config(spec, assignment.candidate)
    if "aio" in config or "nvme" not in offload_devices(config) or spec.is_simulated:
        return False, None
    if known is not None:
        return False, known
    run_dir = assignment.run_dir.path
    should_end = lane.watch(run_dir, assignment.attempt.port)
    with _alone_with_the_disk(should_end):
        return True, measure_nvme(_offload_folder(assignment), run_dir=run_dir, should_end=should_end).aio


@contextlib.contextmanager
def _alone_with_the_disk(should_end: Callable[[], bool]) -> Iterator[None]:
    """Two lanes at once would measure each other."""
    while not _measuring_disk.acquire(timeout=_LOOK_SECONDS):
        if should_end():
            raise Interrupted
    try:
        yield
    finally:
        _measuring_disk.release()
