"""The worker: works on studies one after the other, with one thread that asks the database and lanes that run."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError, Interrupted
from dsopt.launch.devices import DevicePool
from dsopt.launch.environment import check_variables, withheld
from dsopt.launch.program import find_launcher
from dsopt.store.engine import sever_connections
from dsopt.store.ledger import Ledger
from dsopt.store.studies import Store, StoredStudy
from dsopt.store.waking import Waker
from dsopt.study.comparison import specs_of_runs
from dsopt.study.folders import check_folders
from dsopt.worker.capacity import fewest_ranks_of, most_ranks_of, pool_of
from dsopt.worker.desk import Desk
from dsopt.worker.ground import Hand
from dsopt.worker.happenings import Happening, SecretsWithheld, StudyFinished
from dsopt.worker.heart import Heart
from dsopt.worker.patience import Patience
from dsopt.worker.results import ensure_results

_LOOK_SECONDS: Final = 0.1
_SILENT_SECONDS: Final = 90.0  # no server takes so long for an answer: it gives up after a minute
_STUCK_SECONDS: Final = 1.0  # a question to the database that takes longer does not keep a worker that is to stop


class Worker:
    """Works on studies until they are finished or stopped, or until it is asked to stop.

    It writes the result files of each finished study, without holding anything. If it dies before that, whoever asks
    for the result writes them (`worker.results.ensure_results`).

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
        self._wake = threading.Event()
        self._patience = Patience(stop, self._tell)
        self._problem: BaseException | None = None

    def work(self, studies: Sequence[StoredStudy]) -> None:
        """Works on these studies, one after the other.

        Raises:
            Interrupted: the worker was asked to stop.
            DsoptError: studies cannot continue before the user has fixed something; the others are finished.
        """
        working = threading.Thread(target=self._work, args=(studies,), name="dsopt-desk", daemon=True)
        working.start()
        while working.is_alive():
            working.join(_LOOK_SECONDS)
            if self._patience.asking_seconds > _SILENT_SECONDS:
                sever_connections()
            if self._stop.is_set():
                self._wake.set()
                if self._patience.asking_seconds > _STUCK_SECONDS:
                    raise Interrupted  # its runs end with it; what it had is free when its lease is over
        if self._problem is not None:
            raise self._problem

    def _work(self, studies: Sequence[StoredStudy]) -> None:
        try:
            self._work_on(studies)
        except BaseException as error:
            self._problem = error

    def _work_on(self, studies: Sequence[StoredStudy]) -> None:
        heart = Heart(self._store, self._wake.set)  # a database that cannot be used at first is an error
        waker = Waker(self._store.engine, self._wake.set)
        try:
            problems = [problem for study in studies if (problem := self._try(study, heart))]
        finally:
            waker.close()
            heart.close()
            self._patience(heart.leave)
        if problems:
            raise DsoptError("\n".join(problems))

    def _try(self, study: StoredStudy, heart: Heart) -> str | None:
        """Works on one study; its problem does not block the others."""
        try:
            most_ranks_of(study.spec, self._pool)
            if not study.spec.is_simulated:
                for spec in specs_of_runs(study.spec):
                    find_launcher(spec.launch.program[0], Path(spec.cwd))
                    check_variables(spec, os.environ)
                self._tell_withheld(study)
            check_folders(study.spec)
            self._patience(lambda: heart.begin(study.id))
            hand = Hand(store=self._store, ledger=Ledger(self._store, heart.me), pool=self._pool, tell=self._tell)
            Desk(hand, study, heart, self._patience, self._stop, self._wake, self._lanes_for(study)).work()
            state = self._patience(lambda: self._store.state(study))
            if state is None:
                return f"study '{study.name}' was deleted while this worker was working on it; nothing of it is left"
            if state == "finished":
                self._tell(StudyFinished(study=study, files=ensure_results(self._store, study)))
        except DsoptError as error:
            return str(error)
        return None

    def _tell_withheld(self, study: StoredStudy) -> None:
        """Says which variables of this worker no run of the study gets."""
        runs = list(specs_of_runs(study.spec))
        names = set.intersection(*(set(withheld(os.environ, run.launch, run.pass_env)) for run in runs))
        if names:
            self._tell(SecretsWithheld(study=study, names=sorted(names)))

    def _lanes_for(self, study: StoredStudy) -> int:
        """How many runs of a study the devices allow side by side."""
        least = max(1, fewest_ranks_of(study.spec, self._pool))  # dry runs need no devices, so they run as many at once
        return max(1, len(pool_of(study.spec, self._pool).indices) // least)

    def _tell(self, happening: Happening) -> None:
        with self._telling:
            self._on_happening(happening)
