"""A study in the database, as the ground on which its plan is carried out: claims, Optuna's trials, verdicts."""

from collections.abc import Callable
from dataclasses import dataclass

import optuna

from dsopt.search import plan
from dsopt.search.history import History, profile_attributes
from dsopt.search.memory import MemoryModel
from dsopt.search.pruners import early_stopping, memory_pruner
from dsopt.search.sampler import CandidateSampler, distributions
from dsopt.search.steps import Explore, RunReference
from dsopt.search.tuners import tuner_named
from dsopt.store import trials
from dsopt.store.attempts import Task, WorkerRecord
from dsopt.store.studies import Store, StoredStudy
from dsopt.study.part import REFERENCE, VERDICT, Part
from dsopt.study.space import Candidate
from dsopt.study.trial_attributes import TrialAttributes
from dsopt.worker.happenings import Happening, StageClosed, TaskSkipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A claimed task, its trial in Optuna, what was known when it was chosen, and why it was chosen, in words."""

    task: Task
    trial: optuna.Trial
    history: History
    why: str | None = None


class StudyGround:
    """A study that workers share, as the ground on which its plan is carried out; needs the study's lock."""

    def __init__(
        self,
        store: Store,
        record: WorkerRecord,
        study: StoredStudy,
        read: Callable[[], History],
        tell: Callable[[Happening], None],
    ) -> None:
        self._store = store
        self._record = record
        self._study = study
        self._read = read
        self._tell = tell
        self.history = read()

    def close_stage(self, stage: int, verdict: str) -> None:
        """Writes the verdict on the stage's Optuna study."""
        self._store.optuna_study(self._study, Part.of(stage)).set_user_attr(VERDICT, verdict)
        self._tell(StageClosed(study=self._study, stage=stage, verdict=verdict))
        self.history = self._read()

    def run_reference(self, step: RunReference) -> Assignment:
        """Claims a reference run."""
        self._store.advance(self._study, plan.state_of(step))
        optuna_study = self._store.optuna_study(self._study, REFERENCE)
        trial = optuna_study.ask()
        profile = profile_attributes(step.candidate) if step.name == "profile" and step.candidate else TrialAttributes()
        trials.mark(trial, TrialAttributes(candidate=step.name, round=step.round) | profile)
        task = Task(part=REFERENCE, trial=trial.number, name=step.name, round=step.round)
        claimed = self._record.claim(self._study, task)
        assert claimed, "the plan names no reference run that is claimed, and the study is locked"
        return Assignment(task=task, trial=trial, history=self.history, why=step.why)

    def explore(self, step: Explore) -> Assignment | None:
        """Asks Optuna, whose sampler (ours) claims a candidate. None: a pruner refused it."""
        study, history = self._study, self.history
        self._store.advance(study, plan.state_of(step))
        part, tuning = Part.of(step.stage), study.spec.autotuning
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
            tuner=tuner_named(tuning.tuner_type),
            observations=history.stages[step.stage],
            maximize=tuning.maximize,
            claim=claim,
            forecast=step.forecast,
        )
        trial = optuna_study.ask(distributions(space))
        [task] = claimed
        refusal = _refusal(study, step, trial, history)
        if refusal is None:
            return Assignment(task=task, trial=trial, history=history, why=_why(step, trial))
        trials.mark(trial, TrialAttributes(candidate=task.name, phase=step.phase))
        trials.tell_pruned(trial, *refusal)
        self._tell(TaskSkipped(study=study, task=task, why=refusal[1]))
        self.history = self._read()
        return None


def _why(step: Explore, trial: optuna.Trial) -> str | None:
    """Why a trial's candidate was chosen, if the models chose it."""
    if step.forecast is None:
        return None
    return step.forecast.of([Candidate.from_params(step.stage, trial.params)]).why(0, step.forecast.best)


def _refusal(study: StoredStudy, step: Explore, trial: optuna.Trial, history: History) -> tuple[str, str] | None:
    """Why a pruner refuses a trial before it costs a run, as reason and message; None if none does."""
    candidate = Candidate.from_params(step.stage, trial.params)
    facts = history.facts_for(study.spec)
    assert facts is not None
    model = step.forecast.memory if step.forecast else MemoryModel(study.spec, facts, history)
    trial.study.pruner = memory_pruner(model, step.stage)
    if not plan.is_baseline(study.spec, history, candidate) and trial.should_prune():
        return "predicted_oom", model.why_not(candidate) or ""
    patience = study.spec.autotuning.tuner_early_stopping
    trial.study.pruner = early_stopping(history, step.stage, patience)
    if step.phase == "explore" and trial.should_prune():
        return "early_stopping", f"the last {patience} runs of this stage brought nothing better"
    return None
