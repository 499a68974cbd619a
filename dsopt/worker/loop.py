"""The worker: works on studies one after the other, with one thread that asks the database and lanes that run."""

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from dsopt.errors import DsoptError, Interrupted
from dsopt.launch.device_locks import DeviceLocks
from dsopt.launch.devices import DevicePool
from dsopt.launch.environment import withheld
from dsopt.launch.placers.placer import ChoosingPlacer
from dsopt.launch.strangers import Strangers
from dsopt.launch.tidied import tidy_left
from dsopt.launch.undone import undo_left
from dsopt.store.engine import sever_connections
from dsopt.store.frozen import end_frozen_holder
from dsopt.store.ledger import Ledger
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.trouble import takes_no_writes
from dsopt.store.waking import Waker
from dsopt.study.comparison import specs_of_runs
from dsopt.study.folders import check_folders, find_results_folder, results_folder
from dsopt.worker.capacity import lanes_of
from dsopt.worker.check_node import check_node
from dsopt.worker.desk import LEFT, Desk
from dsopt.worker.ending import Ending
from dsopt.worker.hand import Hand
from dsopt.worker.happenings import DriverSilent, Happening, SecretsWithheld, StudyFinished
from dsopt.worker.heart import Heart
from dsopt.worker.node_speed import NodeSpeed
from dsopt.worker.patience import Patience
from dsopt.worker.results import ensure_results
from dsopt.worker.taken_nodes import TakenNodes

_LOOK_SECONDS: Final = 0.1
_SILENT_SECONDS: Final = 90.0  # no server takes so long for an answer: it gives up after a minute
_STUCK_SECONDS: Final = 1.0  # a database that answers nothing for longer does not keep a worker that is to stop


class Worker:
    """Works on studies until they are finished or stopped, or until its `ending` ends it.

    It writes the result files of each finished study, without holding anything. If it dies before that, whoever asks
    for the result writes them (`worker.results.ensure_results`).

    Args:
        store: the storage.
        pool: devices this worker may use; runs lease theirs from it.
        ending: when the worker ends before that.
        on_happening: called with everything that a person may want to watch.
    """

    def __init__(
        self, store: Store, pool: DevicePool, ending: Ending, on_happening: Callable[[Happening], None]
    ) -> None:
        self._store = store
        self._pool = pool
        self._ending = ending
        self._on_happening = on_happening
        self._telling = threading.Lock()
        self._wake = threading.Event()
        self._patience = Patience(ending.stop, self._tell, lambda: end_frozen_holder(store.engine))
        self._problem: BaseException | None = None
        self._taken_nodes = TakenNodes()

    def work(self, find: Callable[[], Sequence[StoredStudy]]) -> None:
        """Works on studies, one after the other.

        Args:
            find: the studies to work on; asked again after each turn, until it finds none that the worker has not left.

        Raises:
            Interrupted: the worker was asked to stop.
            DsoptError: studies cannot continue before the user has fixed something; the others are finished.
        """
        working = threading.Thread(target=self._work, args=(find,), name="dsopt-desk", daemon=True)
        working.start()
        asked_at = math.inf  # to stop
        while working.is_alive():
            working.join(_LOOK_SECONDS)
            if self._patience.asking_seconds > _SILENT_SECONDS:
                sever_connections()
            if self._ending.stop.is_set():
                self._wake.set()
                asked_at = min(asked_at, time.monotonic())
                if min(time.monotonic() - asked_at, self._patience.unanswered_seconds) > _STUCK_SECONDS:
                    raise Interrupted  # its runs end with it; what it had is free when its lease is over
        if self._problem is not None:
            raise self._problem

    def _work(self, find: Callable[[], Sequence[StoredStudy]]) -> None:
        try:
            self._work_on(find)
        except BaseException as error:
            self._problem = error

    def _work_on(self, find: Callable[[], Sequence[StoredStudy]]) -> None:
        self._speed = NodeSpeed(self._store, self._pool, self._tell)
        self._strangers = Strangers(self._pool, lambda: self._tell(DriverSilent()))
        heart = self._patience(self._begin)
        if isinstance(heart, Exception):
            raise heart
        waker = Waker(self._store.engine, self._wake.set)
        self._locks = DeviceLocks(self._store.identity, self._store.shown_url)
        try:
            problems = self._take_turns(find, heart)
        finally:
            if self._pool.placer is not None:
                self._pool.placer.close()
            self._locks.close()
            waker.close()
            heart.close()
            self._patience(heart.leave)
        if problems:
            raise DsoptError("\n".join(problems))

    def _begin(self) -> Heart | Exception:
        """Registers this worker. That it may only read here is an error, returned: no waiting would end it."""
        try:
            return Heart(self._store, self._wake.set, self._ending.drain, self._speed)
        except Exception as error:
            if takes_no_writes(error):
                return error
            raise

    def _take_turns(self, find: Callable[[], Sequence[StoredStudy]], heart: Heart) -> list[str]:
        """Works on each study in turn until all are left. Returns the problems; one does not block the other studies.

        A worker that does not wait for others ends after a turn in which there was nothing to begin.
        """
        left: dict[str, bool] = {}  # and whether somebody may resume it
        begun = set[str]()
        problems: list[str] = []

        def is_open(study: StoredStudy) -> bool:
            if study.id not in left:
                return True
            return left[study.id] and self._patience(lambda: self._store.state(study)) not in LEFT

        while studies := list(filter(is_open, self._patience(find))):
            has_begun = False
            for study in studies:
                if self._ending.drain.is_set():
                    return problems
                left.pop(study.id, None)
                may_resume = False
                if study.id not in begun and self._is_gone(study):  # before its turn
                    left[study.id] = False
                    continue
                begun.add(study.id)
                try:
                    has_begun |= self._work_on_one(study, heart)
                    is_left = may_resume = self._is_left(study)
                except BrokenPipeError:
                    raise  # nobody reads what this worker says
                except (DsoptError, OSError) as error:
                    problems.append(str(error) if isinstance(error, DsoptError) else _of_folder(study, error))
                    is_left = True
                if is_left:
                    left[study.id] = may_resume
            if self._ending.until_idle and not has_begun:
                break
        return problems

    def _note_database(self) -> None:
        self._locks.belong_to(self._store.identity)

    def _work_on_one(self, study: StoredStudy, heart: Heart) -> bool:
        """Works on a study. Returns whether it has begun a run."""
        study.check_trust()
        if not self._pool.indices and not isinstance(self._pool.placer, ChoosingPlacer):
            raise DsoptError(
                f"study '{study.name}': every GPU of this worker has failed (what each said is above). "
                f"Nothing is lost. Mend the node (nvidia-smi), then go on with: dsopt worker {study.name}"
            )
        check_node(study.spec, self._pool)
        if not study.spec.is_simulated:
            self._locks.hold(self._pool)
            self._tell_withheld(study)
        check_folders(study.spec)
        if (results := find_results_folder(study.spec)) is not None:
            undo_left(results)
        self._patience(lambda: heart.begin(study.id))
        ledger = Ledger(self._store, heart.me)
        hand = Hand(
            store=self._store,
            ledger=ledger,
            pool=self._pool,
            tell=self._tell,
            speed=self._speed,
            strangers=self._strangers,
            wake=self._wake.set,
            note_database=self._note_database,
            taken_nodes=self._taken_nodes,
        )
        lanes = lanes_of(study.spec, self._pool)
        desk = Desk(hand, study, heart, self._patience, self._ending, self._wake, lanes)
        try:
            return desk.work()
        finally:
            self._pool = self._pool.without(desk.faulty)
            if (results := find_results_folder(study.spec)) is not None:
                with contextlib.suppress(OSError):
                    tidy_left(results)  # runs of other machines may have been the last to end

    def _is_gone(self, study: StoredStudy) -> bool:
        return self._patience(lambda: self._store.state(study)) is None

    def _is_left(self, study: StoredStudy) -> bool:
        """Whether there is nothing more to do for a study; writes the files of a finished one.

        Raises:
            DsoptError: it was deleted.
        """
        state = self._patience(lambda: self._store.state(study))
        if state is None:
            raise DsoptError(
                f"study '{study.name}' was deleted while this worker was working on it; nothing of it is left"
            )
        if state == "finished":
            files = self._patience(lambda: ensure_results(self._store, study), results_folder(study.spec))
            self._tell(StudyFinished(study=study, files=files))
        return state in LEFT

    def _tell_withheld(self, study: StoredStudy) -> None:
        """Says which variables of this worker no run of the study gets."""
        runs = list(specs_of_runs(study.spec))
        names = set.intersection(*(set(withheld(os.environ, run.launch, run.pass_env)) for run in runs))
        if names:
            self._tell(SecretsWithheld(study=study, names=sorted(names)))

    def _tell(self, happening: Happening) -> None:
        with self._telling:
            self._on_happening(happening)


def _of_folder(study: StoredStudy, error: OSError) -> str:
    """What the system refuses in the folders of a study, and what to do."""
    where = f"{error.filename2 or error.filename}: " if error.filename else ""
    return (
        f"study '{study.name}': {where}{error.strerror or error}. Nothing that was recorded is lost. Mend this, then "
        f"go on with: dsopt worker {study.name}"
    )
