"""The lanes of a worker: threads that run one assignment at a time, and know nothing of a database."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from dsopt.experiment.lane import Lane
from dsopt.experiment.measure import Measurement
from dsopt.experiment.outcome import Cancelled
from dsopt.experiment.run import Progress
from dsopt.search.history import BASELINE
from dsopt.study.trial_attributes import TrialAttributes, engine_attributes
from dsopt.worker.assignment import Assignment
from dsopt.worker.happenings import (
    FilesPutBack,
    Happening,
    HelperReplaced,
    SavesInPlace,
    TaskProgressed,
    WarmStartsEnded,
    WroteOutside,
)
from dsopt.worker.leftovers import attributes_left
from dsopt.worker.running import Ended, run

_REPORT_SECONDS: Final = 5.0


class RunInHand:
    """An assignment that a lane runs, how far it is, whether others ran beside it, and at last what came of it.

    Attributes:
        is_unknown: the database does not know it, so that others may take its devices: it ends at once.
        seconds: how long it ran, by a clock that nobody sets; None: it goes on.
    """

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.progress: Progress | None = None
        self.ended: Ended | None = None
        self.seconds: float | None = None
        self.had_company = self.is_unknown = False
        self.is_engine_reported = False
        self._reported_at = time.monotonic()
        self._reported_step = -1

    def to_report(self) -> tuple[Mapping[str, Any], tuple[int, float] | None] | None:
        """What is worth telling Optuna now: first what the engine is, then every few seconds the metric at a step."""
        now, progress = time.monotonic(), self.progress
        if progress is None or self.ended is not None or progress.engine is None:
            return None
        value = _so_far(progress.measurement, self.assignment.study.spec.autotuning.metric)
        is_new = value is not None and progress.steps > self._reported_step
        if self.is_engine_reported and not (is_new and now - self._reported_at >= _REPORT_SECONDS):
            return None
        self._reported_at, self._reported_step = now, progress.steps
        engine = {} if self.is_engine_reported else engine_attributes(progress.engine)
        return engine, None if value is None else (progress.steps, value)

    def attributes(self) -> TrialAttributes:
        """What is written on the trial with its outcome."""
        sources = self.progress.sources if self.progress is not None else {}
        attrs = TrialAttributes(run_dir=str(self.assignment.run_dir.path)) | self.assignment.place(sources)
        if self.seconds is not None:
            attrs["run_seconds"] = self.seconds
        if (ended := self.ended) is not None:
            paths = sorted({*ended.wrote_outside, *ended.left_before})
            attrs.update(attributes_left(paths, saves_in_place=ended.saves_in_place))
        if self.progress is not None and self.progress.resumes_from:
            attrs["resumes_from"] = self.progress.resumes_from
        engine = self.progress.engine if self.progress is not None else None
        seen = {} if engine is None else engine_attributes(engine)
        return cast(TrialAttributes, {**seen, **attrs})

    def of_files(self, *, has_company: bool) -> Iterator[Happening]:
        """What it did to files that are not its own: of those that every run writes to, the first run tells.

        `has_company`: whether the worker has devices for several runs at once.
        """
        task, ended = self.assignment.task, self.ended
        is_first = task.name == BASELINE and not task.round
        if ended is not None and ended.saves_in_place and is_first and has_company:
            yield SavesInPlace(task=task)
        if ended is not None and ended.wrote_outside:
            yield WroteOutside(task=task, paths=ended.wrote_outside)
        if ended is not None and ended.replaced and is_first:
            yield FilesPutBack(task=task, names=ended.replaced, folder=self.assignment.run_dir.replaced)


def _so_far(measurement: Measurement | None, metric: str) -> float | None:
    """The metric as measured so far; metrics that are not about whole steps are known only at the end."""
    if measurement is None or metric not in ("throughput", "latency"):
        return None
    return measurement.samples_per_second if metric == "throughput" else measurement.step_seconds * 1000


def note_company(in_hand: Sequence[RunInHand | None]) -> None:
    """Notes on each of several runs in hand that it had company."""
    several = [one for one in in_hand if one is not None]
    for one in several if len(several) > 1 else ():
        one.had_company = True


class LaneThread:
    """A lane in a thread of its own.

    Args:
        should_end: whether the current run shall end.
        leaves: whether the worker was asked just now to end after its current runs.
        tell: told of progress.
        wake: called when a run has ended.
    """

    def __init__(
        self,
        should_end: Callable[[], bool],
        leaves: Callable[[], bool],
        tell: Callable[[Happening], None],
        wake: Callable[[], None],
    ) -> None:
        self._should_end = should_end
        self._leaves = leaves
        self._tell = tell
        self._wake = wake
        self._todo: queue.SimpleQueue[RunInHand | None] = queue.SimpleQueue()
        self.in_hand: RunInHand | None = None
        self._thread = threading.Thread(target=self._work, name="dsopt-lane", daemon=True)
        self._thread.start()

    def give(self, assignment: Assignment) -> None:
        """Gives the lane, which has nothing to do, an assignment."""
        assert self.in_hand is None
        self.in_hand = RunInHand(assignment)
        self._todo.put(self.in_hand)

    def close(self) -> None:
        """Lets the lane end after its current run."""
        self._todo.put(None)

    def join(self) -> None:
        """Waits for that."""
        self._thread.join()

    def _work(self) -> None:
        lane: Lane | None = None
        try:
            while (in_hand := self._todo.get()) is not None:
                began = time.monotonic()
                try:
                    lane = lane or self._lane()
                    ended = self._run(in_hand, lane)
                    lane.rest()
                except BaseException as error:  # such as no more processes for its guard: nobody else would tell
                    ended = Ended(outcome=Cancelled(), error=error)
                in_hand.seconds, in_hand.ended = time.monotonic() - began, ended
                self._wake()
        finally:
            if lane is not None:
                lane.close()

    def _lane(self) -> Lane:
        return Lane(
            lambda: self._should_end() or (self.in_hand is not None and self.in_hand.is_unknown),
            lambda why: self._tell(WarmStartsEnded(why=why)),
            lambda what: self._tell(HelperReplaced(what=what)),
            self._leaves,
        )

    def _run(self, in_hand: RunInHand, lane: Lane) -> Ended:
        def note(progress: Progress) -> None:
            in_hand.progress = progress
            self._tell(TaskProgressed(task=in_hand.assignment.task, progress=progress))

        return run(in_hand.assignment, lane, note)
