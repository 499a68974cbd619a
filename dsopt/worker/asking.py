"""What to run next: carries out the plan in the database, under the study's lock."""

from collections.abc import Callable

from optuna.trial import TrialState

from dsopt.errors import DsoptError
from dsopt.search.carry_out import next_run
from dsopt.search.history import History
from dsopt.search.steps import Finish, GiveUp, Wait
from dsopt.store import trials
from dsopt.store.attempts import Task, WorkerRecord, bury_the_dead, claimed_trials
from dsopt.store.engine import exclusive
from dsopt.store.studies import Store, StoredStudy
from dsopt.study.part import REFERENCE, Part
from dsopt.study.space import ACCUMULATION, MICRO_BATCH
from dsopt.worker.ground import Assignment, StudyGround
from dsopt.worker.happenings import Happening, StudyProgressed
from dsopt.worker.history import HistoryReader


class Asker:
    """Asks for tasks in a worker's name."""

    def __init__(self, store: Store, record: WorkerRecord, tell: Callable[[Happening], None]) -> None:
        self._store = store
        self._record = record
        self._tell = tell
        self._readers: dict[int, HistoryReader] = {}
        self._adopted_from: set[int] = set()  # studies in which dead workers left nothing
        self._told: dict[int, int] = {}  # by study, how many of its trials were over when watchers were last told

    def next_task(self, study: StoredStudy) -> Assignment | None:
        """Claims the next task.

        None: nothing to run now; the study is finished, or other workers run what comes first. A trial whose worker
        died comes before anything new.

        Raises:
            DsoptError: the study cannot continue before the user has fixed something; it is stopped with that note.
        """
        with exclusive(self._store.engine, f"study-{study.id}"):
            if bury_the_dead(self._store, self._record):
                self._adopted_from.clear()
            adopted = self._adopt(study)
            if adopted is not None:
                trial = trials.open_trial(self._store.optuna_study(study, adopted.part), adopted.trial)
                return Assignment(task=adopted, trial=trial, history=self._read(study))
            ground = StudyGround(self._store, self._record, study, lambda: self._read(study), self._tell)
            found = next_run(study.spec, ground)
            match found:
                case Assignment():
                    return found
                case GiveUp(message=message):
                    self._store.stop(study, message)
                    raise DsoptError(f"study '{study.name}': {message}")
                case Finish():
                    self._store.advance(study, "finished")
                case Wait():
                    self._adopted_from.discard(study.id)
        return None

    def _read(self, study: StoredStudy) -> History:
        """Reads what counts of a study, and tells watchers when more of it is over, whoever ran it."""
        if study.id not in self._readers:
            self._readers[study.id] = HistoryReader(self._store, study)
        history = self._readers[study.id].read()
        over = sum(o.state != "running" for o in history.everything)
        if self._told.get(study.id) != over:
            self._told[study.id] = over
            self._tell(StudyProgressed(study=study, history=history))
        return history

    def _adopt(self, study: StoredStudy) -> Task | None:
        """Adopts a running trial whose worker is gone; looks for one only when there may be one."""
        if study.id in self._adopted_from:
            return None
        task = self._record.adopt(study, self._running_trials(study))
        if task is None:
            self._adopted_from.add(study.id)
        return task

    def _running_trials(self, study: StoredStudy) -> set[tuple[Part, int]]:
        """The running trials of a study that can continue; ends those whose worker died while it asked for them."""
        claimed = claimed_trials(self._store, study)
        running: set[tuple[Part, int]] = set()
        for part in study.parts:
            optuna_study = self._store.optuna_study(study, part)
            for trial in optuna_study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                whole = part == REFERENCE or set(trial.params) >= {MICRO_BATCH, ACCUMULATION}
                if (part, trial.number) in claimed and whole:
                    running.add((part, trial.number))
                else:
                    self._record.give_back(study, Task(part=part, trial=trial.number, name="", round=0))
                    trials.tell_nobodys(optuna_study, trial.number)
        return running
