"""What a worker writes about a study: it claims candidates, begins and ends attempts, and tells Optuna, all at once.

Each change is one transaction, fenced by study, worker and attempt: one that comes too late changes nothing and raises.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa

from dsopt.experiment.outcome import Cancelled, Measured, Outcome, Slow
from dsopt.launch.devices import DevicePool
from dsopt.store import claims, lease_queries, leases, optuna_rows, queries, records, trials
from dsopt.store.attempts import Attempt, NewTask, Task, measurement_row
from dsopt.store.marking import mark
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.tables import new_id
from dsopt.store.transactions import AttemptOver, StudyChanged, changing, writing
from dsopt.store.workers import Registration
from dsopt.study.part import Part
from dsopt.study.trial_attributes import TrialAttributes

_Lost: TypeAlias = queries.Row | Mapping[str, Any]


class Ledger:
    """Writes in a worker's name."""

    def __init__(self, store: Store, me: Registration) -> None:
        self._engine = store.engine
        self.me = me

    def begin(
        self,
        study: StoredStudy,
        task: Task | NewTask,
        run_dir: Path,
        request: leases.Request,
        *,
        decisions: int | None = None,
        **values: Any,  # noqa: ANN401 - columns of the table of studies
    ) -> tuple[Task, Attempt]:
        """Begins an attempt with the devices that it requests and a port; a new task is claimed with it.

        Raises:
            DevicesTaken: not enough of them are free now.
            Fenced: it is not this worker's to begin; with `decisions`, or others have decided since.
        """
        with changing(
            self._engine, study.id, worker_id=self.me.id, decisions=decisions, is_open=True, **values
        ) as connection:
            if isinstance(task, NewTask):
                task = self._claim(connection, study, task)
            elif not claims.has(connection, worker_id=self.me.id, **_trial(study, task)):
                raise AttemptOver
            row = self._attempt_row(study, task, run_dir)
            got = leases.take(connection, self.me, row["id"], run_dir, request)
            kept = json.dumps(got.names) if got.names else None  # leases go, the attempt stays
            queries.insert_attempt(connection, {**row, "devices": kept})
        return task, Attempt(id=row["id"], devices=got.devices, port=got.port, hosts=got.hosts)

    def skip(self, study: StoredStudy, task: NewTask, *, decisions: int, **values: Any) -> Task:  # noqa: ANN401
        """Claims a candidate whose trial is over before it cost a run.

        Raises:
            Fenced: others have decided since, or this worker is gone.
        """
        with changing(self._engine, study.id, worker_id=self.me.id, decisions=decisions, **values) as connection:
            return self._claim(connection, study, task)

    def change(self, study: StoredStudy, *, version: int | None = None, **values: Any) -> None:  # noqa: ANN401
        """Changes columns of a study itself; with a version, of an unfinished one that still has it.

        Raises:
            Fenced: the study has changed since that version, or this worker is gone.
        """
        with changing(self._engine, study.id, worker_id=self.me.id, version=version, **values):
            pass

    def finish(self, study: StoredStudy, *, version: int) -> None:
        """Finishes a study that still has that version; what goes on would change nothing any more, and is cancelled.

        Raises:
            Fenced: the study has changed since that version, or this worker is gone.
        """
        with changing(self._engine, study.id, worker_id=self.me.id, version=version, state="finished") as connection:
            trials.cancel_open(connection, study)

    def mark_part(
        self, study: StoredStudy, part: Part, attributes: Mapping[str, Any], *, version: int | None = None
    ) -> None:
        """Writes attributes of a part, here and in its Optuna study.

        Raises:
            Fenced: the study has changed since that version, or this worker is gone.
        """
        with changing(self._engine, study.id, worker_id=self.me.id, version=version) as connection:
            mark(connection, study, part, attributes)

    def adopt(
        self, study: StoredStudy, rank: Callable[[tuple[Part, int]], tuple[int, int] | None] = lambda _: (0, 0)
    ) -> Task | None:
        """Adopts a running trial that no worker has, that of the lowest rank first, and none without a rank.

        Raises:
            Fenced: the study or this worker is gone.
        """
        with self._engine.connect() as connection:
            free = claims.free_of(connection, study.id)
        ranked = [(found, row) for row in free if (found := rank(_task(row).key)) is not None]
        for _, row in sorted(ranked, key=lambda pair: pair[0]):
            with changing(self._engine, study.id, worker_id=self.me.id, is_open=True) as connection:
                if claims.take(connection, study.id, row["id"], self.me.id):
                    return _task(row)
        return None

    def running(self, study: StoredStudy) -> list[tuple[Task, Attempt]]:
        """This worker's running attempts of a study, each without its devices."""
        with self._engine.connect() as connection:
            rows = queries.running_attempts(connection, self.me.id)
        nothing = DevicePool(kind="cpu", indices=())
        return [
            (_task(row), Attempt(id=row["id"], devices=nothing, port=0)) for row in rows if row["study_id"] == study.id
        ]

    def claimed(self, study: StoredStudy) -> list[Task]:
        """The trials of a study that this worker has and that are not over."""
        with self._engine.connect() as connection:
            return [_task(row) for row in claims.open_of(connection, self.me.id, study.id)]

    def leave(self, study: StoredStudy, task: Task) -> None:
        """Leaves a trial to whatever worker adopts it next.

        Raises:
            Fenced: the study or this worker is gone.
        """
        with changing(self._engine, study.id, worker_id=self.me.id) as connection:
            if claims.has(connection, worker_id=self.me.id, **_trial(study, task)):
                claims.leave(connection, **_trial(study, task))

    def give_back(self, study: StoredStudy, tasks: Sequence[Task]) -> None:
        """Gives the claims of trials that are over back: they do not count any more.

        Raises:
            Fenced: the study or this worker is gone.
        """
        with changing(self._engine, study.id, worker_id=self.me.id) as connection:
            for task in tasks:
                claims.release(connection, worker_id=self.me.id, is_over=True, **_trial(study, task))

    def disown(self, study: StoredStudy, part: Part, number: int, why: str) -> None:
        """Gives the claim of a trial back that the study cannot have made, and ends the trial if it runs.

        Raises:
            Fenced: the study or this worker is gone.
        """
        with changing(self._engine, study.id, worker_id=self.me.id) as connection:
            claims.release(connection, study_id=study.id, stage=part, trial=number)
            trials.end_foreign(connection, study, part, number, f"it has {why}")

    def end_added(self, study: StoredStudy, added: Sequence[tuple[Part, int]], why: str) -> list[tuple[Part, int]]:
        """Ends such trials, and returns them: those that were over meanwhile are not among them.

        Raises:
            Fenced: the study or this worker is gone.
        """
        with changing(self._engine, study.id, worker_id=self.me.id) as connection:
            return [one for one in added if trials.end_foreign(connection, study, *one, why)]

    def report(
        self,
        study: StoredStudy,
        task: Task,
        attempt: Attempt,
        attributes: Mapping[str, Any],
        at: tuple[int, float] | None,
    ) -> None:
        """Writes what is known of a running attempt on its trial; `at` is a step and the metric there.

        Raises:
            AttemptOver: somebody else ended it.
        """
        with writing(self._engine) as connection:
            trial_id = optuna_rows.trial_id_of(connection, f"{study.name}/{task.part}", task.trial)
            if trial_id is None or not queries.has_attempt(
                connection, attempt.id, worker_id=self.me.id, state="running"
            ):
                raise AttemptOver
            optuna_rows.mark(connection, trial_id, attributes)
            if at is not None:
                optuna_rows.report(connection, trial_id, *at)

    def end(
        self,
        study: StoredStudy,
        task: Task,
        attempt: Attempt,
        outcome: Outcome,
        attributes: TrialAttributes,
        *,
        is_told: bool,
        is_left: bool = False,
    ) -> None:
        """Ends an attempt, frees its devices, and records its outcome, here and in Optuna.

        Args:
            study: the study.
            task: its task.
            attempt: this worker's attempt, whose processes are gone.
            outcome: what came of it; a cancelled one gives its claim back.
            attributes: what else is written on the trial.
            is_told: whether this is the trial's outcome; False: there will be another attempt.
            is_left: whether another worker should make that.

        Raises:
            Fenced: somebody else ended it, or the study or this worker is gone.
        """
        metric = study.spec.autotuning.metric
        with changing(self._engine, study.id, worker_id=self.me.id, decides=False) as connection:
            seconds = queries.finish_attempt(connection, attempt.id, worker_id=self.me.id, **_ended(outcome))
            if seconds is None:
                if queries.has_attempt(connection, attempt.id, worker_id=self.me.id, state=outcome.state):
                    return  # an earlier try, whose answer was lost with the connection
                raise AttemptOver
            lease_queries.end_leases(connection, attempt.id)
            if isinstance(outcome, Measured | Slow):
                queries.insert_measurement(connection, attempt.id, measurement_row(outcome, metric))
            if isinstance(outcome, Cancelled):
                claims.release(connection, **_trial(study, task))
            elif is_left:
                claims.leave(connection, **_trial(study, task))
            if is_told:
                seconds = attributes.get("run_seconds", seconds)  # somebody may have set the database's clock
                trials.end(connection, study, task.part, task.trial, outcome, seconds, attributes)

    def end_without_a_run(
        self, study: StoredStudy, task: Task, outcome: Outcome, lost: _Lost | None, left: TrialAttributes | None = None
    ) -> None:
        """Records the outcome of a trial that this worker adopted: of a lost attempt, by its row and what it has left.

        Raises:
            Fenced: it is not this worker's, or the study or this worker is gone.
        """
        with changing(self._engine, study.id, worker_id=self.me.id) as connection:
            if not claims.has(connection, worker_id=self.me.id, **_trial(study, task)):
                raise AttemptOver
            attrs = TrialAttributes(candidate=task.name) | (left or TrialAttributes())
            if lost is not None:
                place = {"node": lost["node"], "devices": lost["devices"]}
                row = self._attempt_row(study, task, Path(lost["run_dir"])) | place
                attrs |= records.attributes_of_place(study.spec, lost)
                queries.insert_attempt(connection, row)
                queries.finish_attempt(connection, row["id"], worker_id=self.me.id, **_ended(outcome))
                if isinstance(outcome, Measured | Slow):
                    figures = measurement_row(outcome, study.spec.autotuning.metric)
                    queries.insert_measurement(connection, row["id"], figures)
            trials.end(connection, study, task.part, task.trial, outcome, None, attrs)

    def free(self, attempt: Attempt) -> None:
        """Frees the devices of an attempt that somebody else ended; its processes are gone."""
        with writing(self._engine) as connection:
            lease_queries.end_leases(connection, attempt.id)

    def _claim(self, connection: sa.Connection, study: StoredStudy, task: NewTask) -> Task:
        trial = optuna_rows.add_trial(connection, f"{study.name}/{task.part}", task.frozen)
        claimed = Task(part=task.part, trial=trial, name=task.name, round=task.round, phase=task.phase)
        kept = {"begun": records.begun(task.frozen), "ended": records.ended_by(task.frozen)}
        named = {"candidate": task.name, "round": task.round, "worker_id": self.me.id}
        if not claims.insert(connection, {**_trial(study, claimed), **named, **kept}):
            raise StudyChanged
        return claimed

    def _attempt_row(self, study: StoredStudy, task: Task, run_dir: Path) -> dict[str, Any]:
        return {
            **_trial(study, task),
            "id": new_id(),
            "candidate": task.name,
            "round": task.round,
            "worker_id": self.me.id,
            "node": self.me.node,
            "run_dir": str(run_dir),
        }


def _task(row: queries.Row) -> Task:
    return Task(part=Part(row["stage"]), trial=row["trial"], name=row["candidate"], round=row["round"])


def _trial(study: StoredStudy, task: Task) -> dict[str, Any]:
    return {"study_id": study.id, "stage": task.part, "trial": task.trial}


def _ended(outcome: Outcome) -> dict[str, Any]:
    reason, message = (None, None) if isinstance(outcome, Measured) else (outcome.reason, outcome.message)
    return {"state": outcome.state, "reason": reason, "message": message}
