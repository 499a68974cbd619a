"""Runs one task: from a claim to an outcome in the database and in Optuna."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna

from dsopt.errors import DsoptError
from dsopt.experiment.lane import Lane
from dsopt.experiment.measure import Measurement
from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Measured, Outcome, Slow
from dsopt.experiment.outside import Traces, new_traces, traces
from dsopt.experiment.run import Progress
from dsopt.launch.devices import DevicePool
from dsopt.launch.nvme import measure_nvme
from dsopt.protocol.run_dir import RunDir
from dsopt.search import plan
from dsopt.search.history import History
from dsopt.search.least_memory import profile_candidate
from dsopt.store import trials
from dsopt.store.attempts import Attempt, Task, WorkerRecord, bury_the_dead, failed_launches, last_attempt, run_seconds
from dsopt.store.engine import exclusive
from dsopt.store.studies import Store, StoredStudy
from dsopt.study.candidate_run import run_config
from dsopt.study.comparison import spec_of_run
from dsopt.study.ds_config import get_path, offload_devices
from dsopt.study.folders import results_folder
from dsopt.study.part import AIO, REFERENCE
from dsopt.study.space import OFFLOADS, ZERO, Candidate
from dsopt.study.spec import StudySpec
from dsopt.study.trial_attributes import TrialAttributes
from dsopt.worker.capacity import pool_of, ranks_of
from dsopt.worker.ground import Assignment
from dsopt.worker.happenings import (
    Happening,
    TaskEnded,
    TaskProgressed,
    TaskSkipped,
    TaskStarted,
    WarmStartsEnded,
    WroteOutside,
)
from dsopt.worker.preparing import prepare, rules_of

_WAIT_SECONDS = 0.5
_REPORT_SECONDS = 1.0
_MAX_LOST = 12  # a preempted worker is not a candidate's fault, but a candidate that kills every worker is to blame


class Runner:
    """Runs tasks in a worker's name."""

    def __init__(
        self,
        store: Store,
        record: WorkerRecord,
        pool: DevicePool,
        should_stop: Callable[[], bool],
        tell: Callable[[Happening], None],
    ) -> None:
        self._store = store
        self._record = record
        self._pool = pool
        self._should_stop = should_stop
        self._tell = tell
        self._lane = Lane(should_stop, lambda why: tell(WarmStartsEnded(why=why)))

    def close(self) -> None:
        """Ends the helper processes of the runs."""
        self._lane.close()

    def run_task(self, study: StoredStudy, assignment: Assignment) -> None:
        """Runs a task, unless it is the baseline under another name or already has a recorded outcome."""
        task, trial, history = assignment.task, assignment.trial, assignment.history
        candidate = _candidate(study, task, trial, history)
        if task.part != REFERENCE and plan.is_baseline(study.spec, history, candidate):
            self._tell_as_baseline(study, task, trial, history)
            return
        self._tell(TaskStarted(study=study, task=task, history=history))
        outcome = self._recorded_outcome(study, task)
        while outcome is None:
            outcome = self._attempt(study, task, candidate, assignment)
            if self._is_to_be_retried(study, task, outcome):
                outcome = None
        if isinstance(outcome, Cancelled):
            self._record.give_back(study, task)
        metric = study.spec.autotuning.metric
        trials.tell(trial, outcome, metric, run_seconds(self._store, study, task))
        value = outcome.metric(metric) if isinstance(outcome, Measured) else None
        self._tell(TaskEnded(study=study, task=task, outcome=outcome, value=value))

    def _tell_as_baseline(self, study: StoredStudy, task: Task, trial: optuna.Trial, history: History) -> None:
        baseline = history.find("baseline")
        assert baseline is not None
        reference = self._store.optuna_study(study, REFERENCE)
        trials.mark(trial, TrialAttributes(candidate=task.name) | _phase_of(task))
        trials.tell_like(trial, reference.get_trials(deepcopy=False)[baseline.trial], "baseline")
        self._tell(TaskSkipped(study=study, task=task, why="it is your own configuration, measured as the baseline"))

    def _recorded_outcome(self, study: StoredStudy, task: Task) -> Outcome | None:
        """The outcome that a worker recorded but did not tell Optuna before it died, if there is one."""
        row = last_attempt(self._store, study, task)
        if row is None:
            return None
        outcome = trials.recorded_outcome(row)
        if outcome is not None:
            return outcome
        lost = failed_launches(self._store, study, task).get("lost", 0)
        if lost >= _MAX_LOST:
            return Failed(reason="lost", message=f"{lost} workers died while running it, one after the other")
        return None

    def _is_to_be_retried(self, study: StoredStudy, task: Task, outcome: Outcome) -> bool:
        if not isinstance(outcome, Failed) or not outcome.retryable:
            return False
        failures = failed_launches(self._store, study, task)
        return sum(failures.values()) - failures.get("lost", 0) < study.spec.max_attempts

    def _attempt(self, study: StoredStudy, task: Task, candidate: Candidate | None, assignment: Assignment) -> Outcome:
        """One launch: leases devices, launches, reads the events into an outcome, records it."""
        study = replace(study, spec=spec_of_run(study.spec, task.name))
        spec = study.spec
        tuning = spec.autotuning
        run_dir = RunDir.create(results_folder(spec), task.name)
        attempt = self._begin(study, task, candidate, run_dir)
        if attempt is None:
            run_dir.path.rmdir()
            return Cancelled()
        try:
            aio = self._aio(study, candidate)
            launch = prepare(spec, task, candidate, run_dir, attempt, aio)
        except DsoptError as error:  # the disk to offload to cannot be used
            outcome: Outcome = Infeasible(reason="invalid_config", message=str(error))
            self._record.finish(attempt, outcome, tuning.metric)
            return outcome
        except BaseException:  # this machine's fault, not the candidate's: the next worker adopts its trial
            self._record.finish(attempt, Cancelled(), tuning.metric)
            raise
        rules = rules_of(spec, task, candidate, assignment.history)
        marks = TrialAttributes(candidate=task.name, run_dir=str(run_dir.path)) | _phase_of(task)
        if assignment.why:
            marks["why"] = assignment.why
        reporter = _Reporter(task, assignment.trial, tuning.metric, marks, self._tell)
        before = _traces(spec)
        outcome = self._lane.run(launch, rules, reporter)
        self._look_outside(spec, assignment, before)
        if isinstance(outcome, Measured | Slow):
            run_dir.write_json(run_dir.metrics, outcome.to_json())
        if not self._record.finish(attempt, outcome, tuning.metric):
            if self._store.state(study) is None:
                raise DsoptError(f"study '{study.name}' was deleted while this worker was running it; nothing is left")
            raise DsoptError("other workers took this one for dead; start it again to continue")
        return outcome

    def _look_outside(self, spec: StudySpec, assignment: Assignment, before: Traces) -> None:
        """Reports what a run may have saved where the user's own checkpoints are."""
        found = [str(path.relative_to(spec.cwd)) for path in new_traces(before, _traces(spec))]
        if found:
            trials.mark(assignment.trial, TrialAttributes(wrote_outside=", ".join(found)))
            self._tell(WroteOutside(task=assignment.task, paths=found))

    def _aio(self, study: StoredStudy, candidate: Candidate | None) -> Mapping[str, Any] | None:
        """The `aio` section for the disk that a run offloads to, measured once per study; None if none is needed."""
        config = run_config(study.spec, candidate)
        if "aio" in config or "nvme" not in offload_devices(config) or study.spec.is_simulated:
            return None
        reference = self._store.optuna_study(study, REFERENCE)
        with exclusive(self._store.engine, f"aio-{study.id}"):
            known: Mapping[str, Any] | None = reference.user_attrs.get(AIO)
            if known is None:
                folder = next(path for s in OFFLOADS if (path := get_path(config, f"{ZERO}{s}.nvme_path")))
                known = measure_nvme(Path(study.spec.cwd) / folder).aio
                reference.set_user_attr(AIO, known)
        return known

    def _begin(self, study: StoredStudy, task: Task, candidate: Candidate | None, run_dir: RunDir) -> Attempt | None:
        """Waits for free devices and begins an attempt on them. None: the worker was asked to stop meanwhile."""
        count = ranks_of(study.spec, self._pool, candidate)
        pool = pool_of(study.spec, self._pool)
        while not self._should_stop():
            attempt = self._record.begin(study, task, run_dir.path, pool, count)
            if attempt is not None:
                return attempt
            time.sleep(_WAIT_SECONDS)
            bury_the_dead(self._store, self._record)
        return None


def _phase_of(task: Task) -> TrialAttributes:
    return TrialAttributes(phase=task.phase) if task.phase else TrialAttributes()


def _traces(spec: StudySpec) -> Traces:
    """What looks like a checkpoint in the working folder of a study, apart from dsopt's own files there."""
    folder = Path(spec.cwd)
    if spec.is_simulated:
        return {}
    return traces(folder, (folder / spec.results_dir, folder / spec.exps_dir))


class _Reporter:
    """Passes a run's progress on to watchers and to Optuna.

    It tells Optuna what it can during the run, because between two runs this would cost time: first what the run is
    about, then what the engine reported, then intermediate values, at most once a second.
    """

    def __init__(
        self,
        task: Task,
        trial: optuna.Trial,
        metric: str,
        marks: TrialAttributes,
        tell: Callable[[Happening], None],
    ) -> None:
        self._task = task
        self._trial = trial
        self._metric = metric
        self._marks = marks
        self._tell = tell
        self._is_marked = self._engine_is_marked = False
        self._last_report = time.monotonic()
        self._last_step = -1

    def __call__(self, progress: Progress) -> None:
        self._tell(TaskProgressed(task=self._task, progress=progress))
        if not self._is_marked:
            trials.mark(self._trial, self._marks)
            self._last_step = trials.last_reported_step(self._trial)
            self._is_marked = True
        if progress.engine is not None and not self._engine_is_marked:
            trials.mark_engine(self._trial, progress.engine)
            self._engine_is_marked = True
        value = _so_far(progress.measurement, self._metric)
        due = time.monotonic() - self._last_report >= _REPORT_SECONDS
        if value is not None and due and progress.steps > self._last_step:
            self._trial.report(value, progress.steps)
            self._last_report, self._last_step = time.monotonic(), progress.steps


def _so_far(measurement: Measurement | None, metric: str) -> float | None:
    """The metric as measured so far; metrics that are not about whole steps are known only at the end."""
    if measurement is None or metric not in ("throughput", "latency"):
        return None
    return measurement.samples_per_second if metric == "throughput" else measurement.step_seconds * 1000


def _candidate(study: StoredStudy, task: Task, trial: optuna.Trial, history: History) -> Candidate | None:
    """The point of the space that a task runs; None for the user's own configuration."""
    if task.part != REFERENCE:
        return task.part.candidate(trial.params)
    if task.name == "baseline" or study.spec.compare:
        return None
    if task.name == "profile":
        return profile_candidate(study.spec)
    return next(o.candidate for o in history.measured if o.name == task.name)
