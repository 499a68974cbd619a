"""A world around a real database, for tests: nodes, workers that freeze, die and come back, and what runs on devices.

Everything in the database is done by dsopt. The world knows beside it what is true: which processes run, what each run
printed, which workers live.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

import sqlalchemy as sa

from dsopt.experiment.outcome import Cancelled, Failed, Measured, Outcome
from dsopt.store.attempts import Attempt, NewTask, Task
from dsopt.store.leases import Request
from dsopt.store.ledger import Ledger
from dsopt.store.orphans import Orphan, find_orphans, sweep
from dsopt.store.queries import other_workers
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Now, Store
from dsopt.store.transactions import AttemptOver, DevicesTaken, Fenced, StudyChanged, WorkerGone
from dsopt.store.workers import Dead, Registration, beat, bury, find_dead, register
from dsopt.study.part import Part
from tests.store.ledger import POOL, measured, new_task

BUDGET = 2
CRASH = Failed(reason="crash", message="it died without a word")
OUTCOMES: dict[str, Outcome] = {"measured": measured(), "crash": CRASH, "cancelled": Cancelled()}
Z0 = Part("z0")


@dataclass(eq=False)
class Run:
    """A launch: who made it, what it prints, and whether its processes are there."""

    study: StoredStudy
    task: Task
    attempt: Attempt
    run_dir: str
    by: Registration
    figure: Measured
    runs: bool = True
    is_lost: bool = False
    is_ended: bool = False
    has_failed: bool = False

    @property
    def value(self) -> float:
        return self.figure.metric("throughput")


@dataclass(eq=False)
class Worker:
    """A worker: `works`, `frozen` or `dead`; `is_late`: its lease is over; what it has read and not used yet."""

    store: Store
    ledger: Ledger
    state: str = "works"
    is_late: bool = False
    is_buried: bool = False
    looks: dict[str, tuple[Now, set[str]]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    tasks: list[tuple[StoredStudy, Task]] = field(default_factory=list)
    dead: list[Dead] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)


class World:
    """What is true. Each method is a thing that somebody does, and says what has to come of it.

    Args:
        stores: of separate processes on one database; the first is that of a person.
    """

    def __init__(self, stores: list[Store]) -> None:
        self.stores = stores
        self.studies: list[StoredStudy] = []  # as somebody knows them; some are deleted
        self.deleted: set[str] = set()
        self.workers: list[Worker] = []
        self.runs: dict[str, Run] = {}  # by run directory
        self.reports: dict[float, Run] = {}

    def register(self, node: str) -> Worker:
        """A worker starts on a node."""
        store = self.stores[1 + len(self.workers) % (len(self.stores) - 1)]
        worker = Worker(store, Ledger(store, self._registration(store, node)))
        worker.ids.append(worker.ledger.me.id)
        self.workers.append(worker)
        return worker

    def _registration(self, store: Store, node: str) -> Registration:
        me = replace(register(store.engine), node=node, host=node)
        self._alter("UPDATE dsopt_workers SET node = :node, host = :node WHERE id = :id", node=node, id=me.id)
        return me

    def silence(self, worker: Worker) -> None:
        """A frozen or dead worker's lease goes by."""
        worker.is_late = True
        self._alter("UPDATE dsopt_workers SET heartbeat_at = heartbeat_at - 61 WHERE id = :id", id=worker.ledger.me.id)

    def kill(self, worker: Worker) -> None:
        """A worker's process is gone. Its runs go on until somebody of the node ends them."""
        worker.state = "dead"
        self._alter("UPDATE dsopt_workers SET process_started = 1 WHERE id = :id", id=worker.ledger.me.id)

    def beat(self, worker: Worker) -> None:
        """A worker says that it lives, or learns that others took it for dead."""
        assert (beat(worker.store.engine, worker.ledger.me, None, None) is None) == worker.is_buried
        worker.is_late = False
        if worker.is_buried:
            self.renew(worker)

    def renew(self, worker: Worker) -> None:
        """A worker that was taken for dead ends its runs, and starts anew under another id."""
        for run in worker.runs:
            run.runs = False
        worker.ledger.me = self._registration(worker.store, worker.ledger.me.node)
        worker.ids.append(worker.ledger.me.id)
        worker.is_buried = worker.is_late = False

    def look_for_dead(self, worker: Worker) -> None:
        with worker.store.engine.connect() as connection:
            worker.dead = find_dead(other_workers(connection, worker.ledger.me.id), worker.ledger.me)

    def bury(self, worker: Worker) -> None:
        """A worker buries those that it found dead, some of whom may have come back since."""
        for dead in worker.dead:
            of = next(other for other in self.workers if dead.id in other.ids)
            is_its = of.ledger.me.id == dead.id and not of.is_buried
            if bury(worker.store.engine, dead):
                assert is_its and (of.state == "dead" or of.is_late), "a living worker was buried"
                of.is_buried = True
                for run in of.runs:
                    run.is_lost = run.is_lost or not run.is_ended
            else:
                assert not (is_its and of.is_late), "a dead worker was not buried"
        worker.dead = []

    def look_for_orphans(self, worker: Worker) -> None:
        with worker.store.engine.connect() as connection:
            worker.orphans = find_orphans(connection, worker.ledger.me, POOL)

    def sweep(self, worker: Worker) -> None:
        """A worker ends the processes on its node that nobody has, and frees their devices."""
        for run in self.runs.values():
            if run.attempt.id in {orphan.attempt_id for orphan in worker.orphans}:
                assert run.by.node == worker.ledger.me.node
                run.runs = False
        sweep(worker.store.engine, worker.orphans)
        worker.orphans = []

    def look(self, worker: Worker, study: StoredStudy) -> None:
        """A worker reads what counts of a study, and what this stands on."""
        now = worker.store.now(study)
        if now.state in ("finished", "stopped", None):
            worker.looks.pop(study.id, None)
            return
        rows = self._rows("SELECT candidate FROM dsopt_claims WHERE study_id = :id AND stage = 'z0'", id=study.id)
        worker.looks[study.id] = (now, {row.candidate for row in rows})

    def begin(self, worker: Worker, study: StoredStudy, which: int, count: int) -> Run | None:
        """A worker begins a candidate, as what it read allows, however long ago that was."""
        seen, claimed = worker.looks.get(study.id, (None, set()))
        if seen is None or len(claimed) >= BUDGET:
            return None
        name = [name for n in range(1, 9) if (name := f"z0_gas1_tmbspg{n}") not in claimed][which]
        run_dir, now = f"/tmp/r/{len(self.runs)}", worker.store.now(study).decisions
        run = self._begin(worker, study, new_task(name, run_dir=run_dir), run_dir, count, decisions=seen.decisions)
        assert run is None or now == seen.decisions, "others have decided since"
        return run

    def begin_again(self, worker: Worker, study: StoredStudy, task: Task, count: int = 2) -> Run | None:
        """A worker begins another attempt of a trial that is its own."""
        run = self._begin(worker, study, task, f"/tmp/r/{len(self.runs)}", count)
        if run is not None:
            worker.tasks.remove((study, task))
        return run

    def _begin(
        self, worker: Worker, study: StoredStudy, task: Task | NewTask, run_dir: str, count: int, **fence: int
    ) -> Run | None:
        me = worker.ledger.me
        try:
            claimed, attempt = worker.ledger.begin(study, task, Path(run_dir), Request(pool=POOL, count=count), **fence)
        except DevicesTaken:
            return None
        except Fenced as fenced:
            self._settle(worker, study, fenced)
            return None
        assert not worker.is_buried and study.id not in self.deleted, "it came too late"
        run = Run(study, claimed, attempt, run_dir, me, measured(1 + len(self.runs) / 1000))
        for other in self.runs.values():
            if other.runs and other.by.node == me.node:
                both = set(other.attempt.devices.indices) & set(attempt.devices.indices)
                assert not both, "a device is held by two"
        self.runs[run_dir] = run
        worker.runs.append(run)
        return run

    def report(self, worker: Worker, run: Run) -> None:
        """A worker reports how far a run is."""
        value = 1000.0 + len(self.reports)
        self.reports[value] = run
        try:
            worker.ledger.report(run.study, run.task, run.attempt, {"world_size": 2}, (len(self.reports), value))
        except Fenced:
            assert not self._is_current(run)
        else:
            assert self._is_current(run)

    def end(self, worker: Worker, run: Run, what: str) -> None:
        """A worker records what came of its run: an outcome, or that it is tried `again`, or `left` to others."""
        run.runs = False
        is_current = self._is_current(run)
        outcome = run.figure if what == "measured" else OUTCOMES.get(what, CRASH)
        is_told = what in OUTCOMES
        run.is_ended = True
        worker.runs.remove(run)
        try:
            worker.ledger.end(run.study, run.task, run.attempt, outcome, {}, is_told=is_told, is_left=what == "left")
        except Fenced as fenced:
            assert not is_current, "it was refused, though it was in time"
            worker.ledger.free(run.attempt)
            self._settle(worker, run.study, fenced)
            return
        assert is_current, "it was recorded, though it came too late"
        run.has_failed = what == "crash"
        if what == "again":
            worker.tasks.append((run.study, run.task))

    def end_again(self, worker: Worker, run: Run, what: str) -> None:
        """A worker records another outcome of a run that is over."""
        outcome = run.figure if what == "measured" else OUTCOMES[what]
        try:
            worker.ledger.end(run.study, run.task, run.attempt, outcome, {}, is_told=True)
        except Fenced as fenced:
            self._settle(worker, run.study, fenced)

    def adopt(self, worker: Worker, study: StoredStudy) -> Task | None:
        """A worker takes a trial that nobody has; if the figures of its lost run are on disk, it records them."""
        try:
            task = worker.ledger.adopt(study)
        except Fenced as fenced:
            self._settle(worker, study, fenced)
            return None
        if task is not None:
            assert not worker.is_buried
            worker.tasks.append((study, task))
        return task

    def record_spooled(self, worker: Worker, study: StoredStudy, task: Task) -> None:
        """A worker records what a lost run of its trial has printed."""
        lost = [r for r in self.runs.values() if r.is_lost and (r.study.id, r.task) == (study.id, task)]
        if not lost:
            return
        worker.tasks.remove((study, task))
        row = {"run_dir": lost[-1].run_dir, "node": "there", "devices": None}
        try:
            worker.ledger.end_without_a_run(study, task, lost[-1].figure, row)
        except Fenced as fenced:
            self._settle(worker, study, fenced)

    def leave(self, worker: Worker, study: StoredStudy, task: Task) -> None:
        """A worker leaves a trial to others."""
        worker.tasks.remove((study, task))
        try:
            worker.ledger.leave(study, task)
        except Fenced as fenced:
            self._settle(worker, study, fenced)

    def give_back(self, worker: Worker, run: Run) -> None:
        """A worker gives the claim of a trial back."""
        try:
            worker.ledger.give_back(run.study, [run.task])
        except Fenced as fenced:
            self._settle(worker, run.study, fenced)

    def finish(self, worker: Worker, study: StoredStudy) -> None:
        """A worker that reads that all is done says so."""
        seen, claimed = worker.looks.get(study.id, (None, set()))
        if seen is None or len(claimed) < BUDGET:
            return
        names = [f"{study.name}/{part}" for part in study.parts]
        query = "SELECT state FROM trials t JOIN studies s ON s.study_id = t.study_id WHERE s.study_name IN (:a, :b)"
        if any(row.state == "RUNNING" for row in self._rows(query, a=names[0], b=names[1])):
            return
        now = worker.store.now(study).version
        try:
            worker.ledger.finish(study, version=seen.version)
        except Fenced as fenced:
            self._settle(worker, study, fenced)
        else:
            assert now == seen.version, "it was finished on what is not true any more"

    def _settle(self, worker: Worker, study: StoredStudy, fenced: Fenced) -> None:
        """What a desk does when it was refused; the reason has to be true."""
        worker.looks.pop(study.id, None)
        if study.id in self.deleted:
            worker.tasks = [(of, task) for of, task in worker.tasks if of.id != study.id]
        elif worker.is_buried:
            assert isinstance(fenced, WorkerGone | AttemptOver)
            self.renew(worker)
        else:
            assert isinstance(fenced, StudyChanged | AttemptOver)

    def clear(self) -> None:
        """Everything goes but what processes have read."""
        for study in self.studies:
            if study.id not in self.deleted:
                self.stores[0].stop(study, "enough")
                self.stores[0].delete(study)
        self._alter("DELETE FROM dsopt_leases")
        self._alter("DELETE FROM dsopt_workers")

    def _is_current(self, run: Run) -> bool:
        return not (run.is_lost or run.is_ended or run.study.id in self.deleted)

    def _rows(self, text: str, **values: object) -> list[sa.Row]:
        with self.stores[0].engine.connect() as connection:
            return list(connection.execute(sa.text(text), values).all())

    def _alter(self, text: str, **values: object) -> None:
        with self.stores[0].engine.begin() as connection:
            connection.execute(sa.text(text), values)
