"""Runs one task: from a claim to an outcome that the database and Optuna know."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import optuna

from dsopt.errors import DsoptError
from dsopt.experiment.devices import DevicePool
from dsopt.experiment.guard import Guard
from dsopt.experiment.launch import Launch
from dsopt.experiment.measure import Measurement
from dsopt.experiment.outcome import PASSES, Cancelled, Failed, Infeasible, Measured, Outcome
from dsopt.experiment.results import exps_folder, results_folder
from dsopt.experiment.run import Progress, RunRules, describe, run_experiment
from dsopt.experiment.rundir import RunDir
from dsopt.search import plan
from dsopt.search.history import History
from dsopt.store import trials
from dsopt.store.attempts import Attempt, Task, WorkerRecord, bury_the_dead, failed_launches, last_attempt
from dsopt.store.studies import REFERENCE, Store, StoredStudy
from dsopt.study.candidate_run import candidate_command
from dsopt.study.ds_config import baseline_config, candidate_config
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from dsopt.worker.asking import Assignment
from dsopt.worker.happenings import Happening, TaskEnded, TaskProgressed, TaskSkipped, TaskStarted
from dsopt.worker.knowledge import ranks_of

_WAIT_SECONDS = 0.5
_REPORT_SECONDS = 1.0
_MAX_LOST = 12  # preempted workers are no fault of a candidate; one that takes every worker with it is


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
        self._guard = Guard()

    def close(self) -> None:
        """Ends the guard."""
        self._guard.close()

    def run_task(self, study: StoredStudy, assignment: Assignment) -> None:
        """Runs a task, unless it is the baseline under another name or has a recorded outcome already."""
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
        trials.tell(trial, outcome, metric)
        value = outcome.metric(metric) if isinstance(outcome, Measured) else None
        self._tell(TaskEnded(study=study, task=task, outcome=outcome, value=value))

    def _tell_as_baseline(self, study: StoredStudy, task: Task, trial: optuna.Trial, history: History) -> None:
        baseline = history.find("baseline")
        assert baseline is not None
        reference = self._store.optuna_study(study, REFERENCE)
        trials.mark(trial, candidate=task.name, **({"phase": task.phase} if task.phase else {}))
        trials.tell_like(trial, reference.get_trials(deepcopy=False)[baseline.trial], "baseline")
        self._tell(TaskSkipped(study=study, task=task, why="it is your own configuration, measured as the baseline"))

    def _recorded_outcome(self, study: StoredStudy, task: Task) -> Outcome | None:
        """The outcome that a worker recorded but died before telling, if this task has one."""
        row = last_attempt(self._store, study, task)
        if row is None:
            return None
        if row["state"] == "measured":
            return trials.outcome_from_details(json.loads(row["details"]))
        if row["state"] == "infeasible":
            return Infeasible(reason=row["reason"], message=row["message"])
        if row["state"] == "failed" and row["reason"] != "lost":
            return Failed(reason=row["reason"], message=row["message"])
        lost = failed_launches(self._store, study, task).get("lost", 0)
        if lost >= _MAX_LOST:
            return Failed(reason="lost", message=f"{lost} workers died over it, one after the other")
        return None

    def _is_to_be_retried(self, study: StoredStudy, task: Task, outcome: Outcome) -> bool:
        if not isinstance(outcome, Failed) or not outcome.retryable:
            return False
        failures = failed_launches(self._store, study, task)
        return sum(failures.values()) - failures.get("lost", 0) < study.spec.max_attempts

    def _attempt(self, study: StoredStudy, task: Task, candidate: Candidate | None, assignment: Assignment) -> Outcome:
        """One launch: hold devices, launch, read the events into an outcome, record it."""
        spec = study.spec
        tuning = spec.autotuning
        run_dir = RunDir.create(results_folder(spec), task.name)
        attempt = self._begin(study, task, candidate, run_dir)
        if attempt is None:
            run_dir.path.rmdir()
            return Cancelled()
        launch = _prepare(spec, task, candidate, run_dir, attempt)
        rules = _rules(spec, candidate, assignment.history)
        self._guard.watch(run_dir.path, attempt.port)
        marks = {"candidate": task.name, "run_dir": str(run_dir.path)} | ({"phase": task.phase} if task.phase else {})
        reporter = _Reporter(task, assignment.trial, tuning.metric, marks, self._tell)
        outcome = run_experiment(launch, rules, self._should_stop, reporter)
        if isinstance(outcome, Measured):
            run_dir.write_json(run_dir.metrics, describe(outcome))
        if not self._record.finish(attempt, outcome, tuning.metric):
            if self._store.state(study) is None:
                raise DsoptError(f"study '{study.name}' was deleted while it was worked on; nothing of it is left")
            raise DsoptError("other workers gave this one up for dead; start it again to go on")
        return outcome

    def _begin(self, study: StoredStudy, task: Task, candidate: Candidate | None, run_dir: RunDir) -> Attempt | None:
        """Waits for free devices and begins an attempt on them. None: asked to stop while waiting."""
        count = ranks_of(study.spec, self._pool, candidate)
        while not self._should_stop():
            attempt = self._record.begin(study, task, run_dir.path, self._pool, count)
            if attempt is not None:
                return attempt
            time.sleep(_WAIT_SECONDS)
            bury_the_dead(self._store, self._record)
        return None


def _rules(spec: StudySpec, candidate: Candidate | None, history: History) -> RunRules:
    """When a run has said enough, and what it must agree with."""
    tuning = spec.autotuning
    baseline = history.find("baseline")
    own = baseline.facts if baseline else None
    return RunRules(
        measurement=spec.measurement,
        window=tuning.window,
        floor=(tuning.start_profile_step, tuning.end_profile_step),
        timeout_seconds=spec.timeout_seconds,
        expected=candidate,
        needs_flops=tuning.metric == "FLOPS",
        needs_pass=tuning.metric if tuning.metric in PASSES else None,
        own_rows=(own.rows, own.micro_batch) if own else None,
    )


class _Reporter:
    """Passes a run's progress on: to who watches, and to Optuna.

    What Optuna is told while the run goes on need not be told between two runs, where it would cost time: first what
    the run is about, then what the engine said, then intermediate values, once a second at most.
    """

    def __init__(
        self,
        task: Task,
        trial: optuna.Trial,
        metric: str,
        marks: Mapping[str, str],
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
            trials.mark(self._trial, **self._marks)
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
    """The metric as measured so far; those that are no matter of whole steps are known only at the end."""
    if measurement is None or metric not in ("throughput", "latency"):
        return None
    return measurement.samples_per_second if metric == "throughput" else measurement.step_seconds * 1000


def _candidate(study: StoredStudy, task: Task, trial: optuna.Trial, history: History) -> Candidate | None:
    """The point of the space that a task stands for; None for the user's own configuration."""
    if task.part != REFERENCE:
        return Candidate.from_params(int(task.part.removeprefix("z")), trial.params)
    if task.name == "baseline":
        return None
    if task.name == "profile":
        return plan.profile_candidate(study.spec)
    return next(o.candidate for o in history.measured if o.name == task.name)


def _prepare(spec: StudySpec, task: Task, candidate: Candidate | None, run_dir: RunDir, attempt: Attempt) -> Launch:
    """Writes the files that describe an attempt and gives its launch."""
    config = baseline_config(spec.ds_config) if candidate is None else candidate_config(spec.ds_config, candidate)
    run_dir.write_json(run_dir.ds_config, config)
    command = candidate_command(spec, candidate)
    description = {
        "name": task.name,
        "round": task.round,
        "num_gpus": len(attempt.devices.indices),
        "num_nodes": command.nodes,
        "result_dir": str(run_dir.path),
        "ds_config": config,
    }
    run_dir.write_json(run_dir.description, description)
    run_dir.write_json(exps_folder(spec) / f"{task.name}.json", description)
    return Launch(
        command=command.with_config(str(run_dir.ds_config)),
        cwd=Path(spec.cwd),
        run_dir=run_dir,
        devices=attempt.devices,
        port=attempt.port,
        memory_limit_bytes=spec.memory_per_device,
        count_flops=spec.autotuning.metric == "FLOPS" or (task.name, task.round) == ("baseline", 0),
    )
