"""The worker's loop: ask, run, until its studies are finished; a thread of it says that it lives."""

import threading
from collections.abc import Callable, Sequence

from dsopt.errors import DsoptError, Interrupted
from dsopt.experiment.devices import DevicePool
from dsopt.experiment.launch import find_launcher
from dsopt.store.attempts import HEARTBEAT_SECONDS, WorkerRecord
from dsopt.store.engine import database_error
from dsopt.store.studies import Store, StoredStudy
from dsopt.worker.asking import Asker
from dsopt.worker.happenings import Happening
from dsopt.worker.knowledge import check_folders, ranks_of
from dsopt.worker.running import Runner

_WAIT_SECONDS = 0.5
_LEFT = ("finished", "stopped", None)


class Worker:
    """Works on studies until they are finished or stopped, or it is asked to stop.

    Args:
        store: the storage.
        pool: devices this worker may use; runs lease theirs from it.
        stop: set, by a signal handler, to ask the worker to stop.
        on_happening: told of everything a person may want to watch.
    """

    def __init__(
        self, store: Store, pool: DevicePool, stop: threading.Event, on_happening: Callable[[Happening], None]
    ) -> None:
        self._store = store
        self._pool = pool
        self._stop = stop
        self._tell = on_happening
        self._current: StoredStudy | None = None
        self._study_left = threading.Event()
        self._given_up = threading.Event()
        self._closing = threading.Event()

    def work(self, studies: Sequence[StoredStudy]) -> None:
        """Works on these studies, one after the other.

        Raises:
            Interrupted: the worker was asked to stop.
            DsoptError: studies cannot go on before the user has mended something; the others are finished.
        """
        record = WorkerRecord(self._store)
        heart = threading.Thread(target=self._beat, args=(record,), daemon=True)
        heart.start()
        runner = Runner(self._store, record, self._pool, self._should_leave, self._tell)
        asker = Asker(self._store, record, self._tell)
        try:
            problems = [problem for study in studies if (problem := self._try(study, asker, runner))]
        finally:
            self._closing.set()
            heart.join()
            runner.close()
            record.leave()
        if problems:
            raise DsoptError("\n".join(problems))

    def _try(self, study: StoredStudy, asker: Asker, runner: Runner) -> str | None:
        """Works on one study; a problem of it does not keep the others waiting."""
        try:
            ranks_of(study.spec, self._pool)
            find_launcher(study.spec.launch.launcher)
            check_folders(study.spec)
            self._work_on(study, asker, runner)
        except DsoptError as error:
            if self._given_up.is_set():
                raise
            return str(error)
        return None

    def _work_on(self, study: StoredStudy, asker: Asker, runner: Runner) -> None:
        self._current = study
        self._study_left.clear()
        while self._store.state(study) not in _LEFT:
            if self._stop.is_set():
                raise Interrupted
            if self._given_up.is_set():
                raise DsoptError("other workers gave this one up for dead; start it again to go on")
            assignment = asker.next_task(study)
            if assignment is not None:
                runner.run_task(study, assignment)
            elif self._store.state(study) not in _LEFT:
                self._stop.wait(_WAIT_SECONDS)

    def _should_leave(self) -> bool:
        return self._stop.is_set() or self._study_left.is_set() or self._given_up.is_set()

    def _beat(self, record: WorkerRecord) -> None:
        """Says every few seconds that this worker lives, and sees whether its study was stopped or deleted."""
        while not self._closing.wait(HEARTBEAT_SECONDS):
            try:
                if not record.beat():
                    self._given_up.set()
                if self._current is not None and self._store.state(self._current) in ("stopped", None):
                    self._study_left.set()
            except Exception as error:
                if database_error(error) is None:
                    raise
                # a server that restarts is back at one of the next beats; until then nothing is known to be wrong
