"""The worker's loop: ask, run, until its studies are finished, in as many lanes as its devices allow."""

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from dsopt.errors import DsoptError, Interrupted
from dsopt.launch.devices import DevicePool
from dsopt.launch.program import find_launcher
from dsopt.store.attempts import HEARTBEAT_SECONDS, WorkerRecord
from dsopt.store.engine import database_error
from dsopt.store.studies import Store, StoredStudy
from dsopt.study.comparison import specs_of_runs
from dsopt.study.folders import check_folders
from dsopt.worker.asking import Asker
from dsopt.worker.capacity import fewest_ranks_of, most_ranks_of, pool_of
from dsopt.worker.happenings import Happening, StudyFinished
from dsopt.worker.results import ensure_results
from dsopt.worker.running import Runner

_WAIT_SECONDS = 0.5
_LEFT = ("finished", "stopped", None)


class Worker:
    """Works on studies until they are finished or stopped, or until it is asked to stop.

    It writes the result files of each finished study, without holding the study's lock. If it dies before that, whoever
    asks for the result writes them (`worker.results.ensure_results`).

    Args:
        store: the storage.
        pool: devices this worker may use; runs lease theirs from it.
        stop: an event that a signal handler sets to ask the worker to stop.
        on_happening: called with everything that a person may want to watch.
    """

    def __init__(
        self, store: Store, pool: DevicePool, stop: threading.Event, on_happening: Callable[[Happening], None]
    ) -> None:
        self._store = store
        self._pool = pool
        self._stop = stop
        self._on_happening = on_happening
        self._telling = threading.Lock()
        self._current: StoredStudy | None = None
        self._study_left = threading.Event()
        self._given_up = threading.Event()
        self._lane_failed = threading.Event()
        self._closing = threading.Event()

    def work(self, studies: Sequence[StoredStudy]) -> None:
        """Works on these studies, one after the other.

        Raises:
            Interrupted: the worker was asked to stop.
            DsoptError: studies cannot continue before the user has fixed something; the others are finished.
        """
        record = WorkerRecord(self._store)
        heart = threading.Thread(target=self._beat, args=(record,), daemon=True)
        heart.start()
        try:
            problems = [problem for study in studies if (problem := self._try(study, record))]
        finally:
            self._closing.set()
            heart.join()
            record.leave()
        if problems:
            raise DsoptError("\n".join(problems))

    def _try(self, study: StoredStudy, record: WorkerRecord) -> str | None:
        """Works on one study; its problem does not block the others."""
        try:
            most_ranks_of(study.spec, self._pool)
            if not study.spec.is_simulated:
                for spec in specs_of_runs(study.spec):
                    find_launcher(spec.launch.program[0], Path(spec.cwd))
            check_folders(study.spec)
            self._current = study
            self._study_left.clear()
            self._lane_failed.clear()
            self._run_lanes(study, record)
            if self._store.state(study) == "finished":
                self._tell(StudyFinished(study=study, files=ensure_results(self._store, study)))
        except DsoptError as error:
            if self._given_up.is_set():
                raise
            return str(error)
        return None

    def _run_lanes(self, study: StoredStudy, record: WorkerRecord) -> None:
        """Runs as many experiments side by side as the devices allow, each in its own lane."""
        asker = Asker(self._store, record, self._tell)
        least = max(1, fewest_ranks_of(study.spec, self._pool))  # dry runs need no devices, so they run as many at once
        lanes = max(1, len(pool_of(study.spec, self._pool).indices) // least)
        with concurrent.futures.ThreadPoolExecutor(lanes) as threads:
            futures = [threads.submit(self._run_lane, study, asker, record) for _ in range(lanes)]
            concurrent.futures.wait(futures)
        problems = [error for future in futures if (error := future.exception()) is not None]
        if problems:
            raise next((error for error in problems if not isinstance(error, Interrupted)), problems[0])

    def _run_lane(self, study: StoredStudy, asker: Asker, record: WorkerRecord) -> None:
        runner = Runner(self._store, record, self._pool, self._should_leave, self._tell)
        try:
            self._work_on(study, asker, runner)
        except BaseException:
            self._lane_failed.set()
            raise
        finally:
            runner.close()

    def _work_on(self, study: StoredStudy, asker: Asker, runner: Runner) -> None:
        while self._store.state(study) not in _LEFT and not self._lane_failed.is_set():
            if self._stop.is_set():
                raise Interrupted
            if self._given_up.is_set():
                raise DsoptError("other workers took this one for dead; start it again to continue")
            assignment = asker.next_task(study)
            if assignment is not None:
                runner.run_task(study, assignment)
            elif self._store.state(study) not in _LEFT:
                self._stop.wait(_WAIT_SECONDS)

    def _tell(self, happening: Happening) -> None:
        with self._telling:
            self._on_happening(happening)

    def _should_leave(self) -> bool:
        reasons = (self._stop, self._study_left, self._given_up, self._lane_failed)
        return any(reason.is_set() for reason in reasons)

    def _beat(self, record: WorkerRecord) -> None:
        """Records every few seconds that this worker is alive, and checks whether its study was stopped or deleted."""
        while not self._closing.wait(HEARTBEAT_SECONDS):
            try:
                if not record.beat():
                    self._given_up.set()
                if self._current is not None and self._store.state(self._current) in ("stopped", None):
                    self._study_left.set()
            except Exception as error:
                if database_error(error) is None:
                    raise
                # a server that restarts will answer one of the next beats; until then, assume that nothing is wrong
