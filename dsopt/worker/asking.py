"""What to run next: the plan carried out in the database, under the study's lock."""

from collections.abc import Callable
from dataclasses import dataclass

import optuna
from optuna.trial import TrialState

from dsopt.errors import DsoptError
from dsopt.search import plan
from dsopt.search.history import History, profile_attributes
from dsopt.search.memory import MemoryModel
from dsopt.search.pruners import EarlyStoppingPruner, MemoryPruner
from dsopt.search.sampler import CandidateSampler, distributions
from dsopt.search.steps import CloseStage, Explore, Finish, GiveUp, RunReference, Wait
from dsopt.store import trials
from dsopt.store.attempts import Task, WorkerRecord, bury_the_dead, claimed_trials
from dsopt.store.engine import exclusive
from dsopt.store.studies import REFERENCE, Store, StoredStudy
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate
from dsopt.worker.happenings import Happening, StageClosed, StudyFinished, TaskSkipped
from dsopt.worker.knowledge import HistoryReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A claimed task, its trial in Optuna, what was known when it was chosen, and why it was, in words."""

    task: Task
    trial: optuna.Trial
    history: History
    why: str | None = None


class Asker:
    """Asks for tasks in a worker's name."""

    def __init__(self, store: Store, record: WorkerRecord, tell: Callable[[Happening], None]) -> None:
        self._store = store
        self._record = record
        self._tell = tell
        self._readers: dict[int, HistoryReader] = {}
        self._adopted_from: set[int] = set()  # studies in which nothing was left by workers that died

    def next_task(self, study: StoredStudy) -> Assignment | None:
        """Claims the next task.

        None: nothing to run now; the study is finished, or others have what comes first. A trial whose worker died
        comes before anything new.

        Raises:
            DsoptError: the study cannot go on before the user has mended something; it is stopped with that note.
        """
        with exclusive(self._store.engine, f"study-{study.id}"):
            if bury_the_dead(self._store, self._record):
                self._adopted_from.clear()
            adopted = self._adopt(study)
            history = self._reader(study).read()
            if adopted is not None:
                trial = trials.open_trial(self._store.optuna_study(study, adopted.part), adopted.trial)
                return Assignment(task=adopted, trial=trial, history=history)
            while True:
                step = plan.next_step(study.spec, history)
                match step:
                    case Wait():
                        self._adopted_from.discard(study.id)
                        return None
                    case GiveUp(message=message):
                        self._store.stop(study, message)
                        raise DsoptError(f"study '{study.name}': {message}")
                    case Finish():
                        self._tell(StudyFinished(study=study))
                        self._store.advance(study, "finished")
                        return None
                    case CloseStage(stage=stage, verdict=verdict):
                        self._store.optuna_study(study, f"z{stage}").set_user_attr("verdict", verdict)
                        self._tell(StageClosed(study=study, stage=stage, verdict=verdict))
                    case RunReference():
                        self._store.advance(study, plan.state_of(step))
                        return self._ask_reference(study, step, history)
                    case Explore():
                        self._store.advance(study, plan.state_of(step))
                        assignment = self._ask_candidate(study, step, history)
                        if assignment is not None:
                            return assignment
                history = self._reader(study).read()

    def _reader(self, study: StoredStudy) -> HistoryReader:
        return self._readers.setdefault(study.id, HistoryReader(self._store, study))

    def _adopt(self, study: StoredStudy) -> Task | None:
        """Takes over a running trial that nobody runs; looks for one only when there may be one."""
        if study.id in self._adopted_from:
            return None
        task = self._record.adopt(study, self._running_trials(study))
        if task is None:
            self._adopted_from.add(study.id)
        return task

    def _running_trials(self, study: StoredStudy) -> set[tuple[str, int]]:
        """The running trials of a study that can go on; ends those that a worker died over while it asked for them."""
        claimed = claimed_trials(self._store, study)
        running = set()
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

    def _ask_reference(self, study: StoredStudy, step: RunReference, history: History) -> Assignment:
        optuna_study = self._store.optuna_study(study, REFERENCE)
        trial = optuna_study.ask()
        profile = profile_attributes(step.candidate) if step.name == "profile" and step.candidate else {}
        trials.mark(trial, candidate=step.name, round=step.round, **profile)
        task = Task(part=REFERENCE, trial=trial.number, name=step.name, round=step.round)
        claimed = self._record.claim(study, task)
        assert claimed, "the plan names no reference run that is claimed, and the study is locked"
        return Assignment(task=task, trial=trial, history=history, why=step.why)

    def _ask_candidate(self, study: StoredStudy, step: Explore, history: History) -> Assignment | None:
        """Asks Optuna, whose sampler of ours claims a candidate. None: a pruner refused it."""
        part, tuning = f"z{step.stage}", study.spec.autotuning
        claimed: list[Task] = []

        def claim(candidate: Candidate, trial: int) -> bool:
            task = Task(part=part, trial=trial, name=candidate.name, round=0, phase=step.phase)
            if self._record.claim(study, task):
                claimed.append(task)
            return bool(claimed)

        known = history.facts_for(study.spec)
        space = study.spec.space(step.stage, known.hidden_size if known else None)
        optuna_study = self._store.optuna_study(study, part)
        optuna_study.sampler = CandidateSampler(
            step.candidates,
            space,
            tuner_type=tuning.tuner_type,
            observations=history.observations,
            maximize=tuning.maximize,
            claim=claim,
            forecast=step.forecast,
        )
        trial = optuna_study.ask(distributions(space))
        [task] = claimed
        refusal = _refusal(study, step, trial, history)
        if refusal is None:
            return Assignment(task=task, trial=trial, history=history, why=_why(step, trial))
        trials.mark(trial, candidate=task.name, phase=step.phase)
        trials.tell_pruned(trial, *refusal)
        self._tell(TaskSkipped(study=study, task=task, why=refusal[1]))
        return None


def _why(step: Explore, trial: optuna.Trial) -> str | None:
    """Why a trial's candidate was chosen, where the models chose it."""
    if step.forecast is None:
        return None
    return step.forecast.of([Candidate.from_params(step.stage, trial.params)]).why(0, step.forecast.best)


def _refusal(study: StoredStudy, step: Explore, trial: optuna.Trial, history: History) -> tuple[str, str] | None:
    """Why one of the pruners refuses a trial before it costs a run, as reason and message, if one does."""
    candidate = Candidate.from_params(step.stage, trial.params)
    facts = history.facts_for(study.spec)
    assert facts is not None
    model = step.forecast.memory if step.forecast else MemoryModel(study.spec, facts, history)
    trial.study.pruner = MemoryPruner(model, step.stage)
    if not plan.is_baseline(study.spec, history, candidate) and trial.should_prune():
        return "predicted_oom", model.why_not(candidate) or ""
    patience = study.spec.autotuning.tuner_early_stopping
    trial.study.pruner = EarlyStoppingPruner(history, step.stage, patience)
    if step.phase == "explore" and trial.should_prune():
        return "early_stopping", f"the last {patience} runs of this stage brought nothing better"
    return None
