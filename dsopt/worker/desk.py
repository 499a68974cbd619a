"""The one thread of a worker that asks the database: it begins runs for idle lanes, reports them, and records them."""

import threading
from collections.abc import Callable
from typing import Any, Final

from dsopt.errors import DsoptError, Interrupted
from dsopt.experiment.outcome import Failed, Infeasible, Measured
from dsopt.store.attempts import Task
from dsopt.store.database_file import file_of
from dsopt.store.stored import StoredStudy
from dsopt.store.transactions import Fenced, StudyGone, WorkerDrains, WorkerGone
from dsopt.store.workers import nodes_at_work
from dsopt.study.folders import results_folder
from dsopt.study.part import AIO, REFERENCE, Part
from dsopt.worker.asking import Asker
from dsopt.worker.blame import why_set_aside
from dsopt.worker.disk import Room, unusable
from dsopt.worker.ending import Ending
from dsopt.worker.hand import Hand
from dsopt.worker.happenings import DeviceSetAside, TaskEnded, TaskStarted, TaskTriedAgain
from dsopt.worker.heart import Heart
from dsopt.worker.lanes import LaneThread, RunInHand, note_company
from dsopt.worker.patience import Patience
from dsopt.worker.proofs import has_failed
from dsopt.worker.settling import settle
from dsopt.worker.verdicts import Verdicts

LEFT: Final = ("finished", "stopped", None)
_BUSY_SECONDS: Final = 1.0  # how long it waits at most for something to happen while runs are in hand, and without any
_IDLE_SECONDS: Final = 5.0  # others that die while it is idle are found dead within this time after their lease
_ANOTHER: Final = (
    "the database no longer knows this run: other workers took this one for dead, or it is an older copy. The run is "
    "tried again"
)


class Desk:
    """Works on one study, until that is finished, stopped or deleted, or the worker ends.

    Args:
        hand: what to carry the plan out with.
        study: the study.
        heart: this worker's.
        patience: how it asks the database.
        ending: when the worker ends.
        wake: set when something has happened: a run has ended, the database has changed, the lease is over.
        lanes: how many runs there may be side by side.

    Attributes:
        faulty: GPUs that have failed, without which the worker goes on.
    """

    def __init__(
        self,
        hand: Hand,
        study: StoredStudy,
        heart: Heart,
        patience: Patience,
        ending: Ending,
        wake: threading.Event,
        lanes: int,
    ) -> None:
        self._hand, self._study = hand, study
        self._heart, self._patience, self._ending, self._wake = heart, patience, ending, wake
        self._ask: Callable[[Callable[[], Any]], Any] = patience
        self._leaving = threading.Event()  # the study is over, or a run ended with an error of this machine
        self._verdicts = Verdicts(hand, study)
        self._company, self._outage = self._verdicts.company, self._verdicts.outage
        self._results = results_folder(study.spec)
        self._room = Room(self._results, hand.tell)
        self._settled_for: object = None
        self._has_begun = self._is_idle = False  # idle: there is nothing that it could begin now
        self._errors: list[BaseException] = []
        self.faulty: set[int] = set()
        self._asker = Asker(hand, study, lambda: heart.may_bury, self._is_avoided, self._bears_company, self._outage)
        leaves = ending.drain.was_just_set
        self._lanes = [LaneThread(self._should_end, leaves, hand.tell, wake.set) for _ in range(lanes)]

    def work(self) -> bool:
        """Works on the study. Returns whether it has begun a run.

        Raises:
            Interrupted: the worker was asked to stop.
            DsoptError: the study cannot continue before the user has fixed something.
        """
        try:
            while self._round():
                self._wait()
        except BaseException:
            self._leaving.set()
            self._finish_runs()
            raise
        finally:
            for lane in self._lanes:
                lane.close()
            for lane in self._lanes:
                lane.join()
        if self._errors:
            raise self._errors[0]
        if self._ending.stop.is_set():
            raise Interrupted
        return self._has_begun

    def _round(self) -> bool:
        """Records what has ended, reports what runs, begins what can begin. False: nothing is left to do."""
        if self._heart.is_over and self._heart.problem is not None:
            raise self._heart.problem
        now = self._ask(lambda: self._hand.store.now(self._study))
        if now.state in LEFT or self._errors:
            self._leaving.set()
        for lane in self._lanes:
            if lane.in_hand is not None and lane.in_hand.ended is not None:
                self._record(lane, lane.in_hand)
            elif lane.in_hand is not None:
                self._report(lane.in_hand)
        unsure = self._patience.failures, file_of(self._hand.store.engine), now.incarnation
        if unsure != self._settled_for and now.state is not None:
            self._settled_for = unsure
            self._asker.look_again()
            self._ask(self._hand.note_database)
            settle(self._hand, self._study, [lane.in_hand for lane in self._lanes], self._ask)
        if self._heart.is_buried and not self._count_in_hand():
            self._settle(WorkerGone())
        self._is_idle = False
        if not (self._begins_nothing() or self._heart.is_over) and self._room.is_there():
            self._begin_runs(now.version)
        if self._begins_nothing() or (self._is_idle and self._ending.until_idle):
            return self._count_in_hand() > 0
        return True

    def _begins_nothing(self) -> bool:
        is_ending = any(lane.in_hand is not None and lane.in_hand.is_unknown for lane in self._lanes)
        return self._ending.is_asked or self._leaving.is_set() or bool(self.faulty) or is_ending

    def _should_end(self) -> bool:
        return self._ending.stop.is_set() or self._leaving.is_set() or self._heart.is_over

    def _wait(self) -> None:
        self._wake.wait(_BUSY_SECONDS if self._count_in_hand() or self._ending.is_asked else _IDLE_SECONDS)
        self._wake.clear()

    def _begin_runs(self, version: int) -> None:
        for lane in self._lanes:
            in_hand = self._count_in_hand()
            if lane.in_hand is None and not self._outage.is_on and self._company.may_begin(in_hand=in_hand):
                try:
                    hand = self._hand
                    if not in_hand and not hand.strangers.on(hand.pool.indices):
                        hand.speed.measure_if_due(
                            self._study, hand.ledger.me, hand.pool, hand.avoided_nodes, self._ask, self._should_end
                        )
                    assignment = self._ask(lambda: self._asker.next(version))
                except Fenced as fenced:
                    self._settle(fenced)
                    return
                except OSError as error:
                    if unusable(self._results, error) is None:
                        raise
                    return  # the next round waits for room
                if assignment is None:
                    self._is_idle = not (self._asker.may_begin_soon or self._outage.is_waited_for)
                    return
                self._has_begun = True
                self._company.begun(assignment)
                self._outage.begun(assignment.task, assignment.nodes)
                self._hand.tell(TaskStarted(study=assignment.study, task=assignment.task, history=assignment.history))
                lane.give(assignment)
                note_company([lane.in_hand for lane in self._lanes])

    def _report(self, run: RunInHand) -> None:
        if (report := run.to_report()) is None:
            return
        of, ledger = run.assignment, self._hand.ledger
        try:
            self._ask(lambda: ledger.report(of.study, of.task, of.attempt, *report))
            run.is_engine_reported = True
            self._outage.stands(of.task)
        except Fenced:
            self._settled_for = None

    def _record(self, lane: LaneThread, run: RunInHand) -> None:
        """Records what came of a run; the lane is idle then."""
        assignment, ended = run.assignment, run.ended
        assert ended is not None
        study, task, outcome = assignment.study, assignment.task, ended.outcome
        others = self._ask(self._others) if isinstance(outcome, Failed | Infeasible) else ()
        attempts = self._ask(lambda: self._hand.store.runs(study)) if has_failed(outcome) or others else ()
        told = (what := self._verdicts.of(run, outcome, attempts, others)) == "tell"
        try:
            self._ask(
                lambda: self._hand.ledger.end(
                    study, task, assignment.attempt, outcome, run.attributes(), is_told=told, is_left=not told
                )
            )
            if ended.aio is not None:
                self._keep_aio(study, ended.aio)
        except Fenced as fenced:
            self._ask(lambda: self._hand.ledger.free(assignment.attempt))
            self._settle(fenced)
            outcome = Failed(reason="lost", message=_ANOTHER)
        self._hand.release(assignment.placement)
        lane.in_hand = None
        self._asker.look_again()
        if what == "elsewhere":
            self._verdicts.health.avoid(task, attempts)
        for happening in run.of_files(has_company=len(self._lanes) > 1):
            self._hand.tell(happening)
        value = outcome.metric(study.spec.autotuning.metric) if isinstance(outcome, Measured) else None
        if isinstance(outcome, Failed):
            self._avoid_what_failed(task, outcome)
        if told:
            self._hand.tell(TaskEnded(study=study, task=task, outcome=outcome, value=value))
        elif isinstance(outcome, Failed | Infeasible):
            self._hand.tell(TaskTriedAgain(task=task, outcome=outcome, is_elsewhere=what == "elsewhere"))
        if ended.lacks is not None:
            self._room.waits_for(ended.lacks)
        if ended.error is not None:
            self._errors.append(ended.error)
        if others and isinstance(outcome, Failed | Infeasible) and self._verdicts.is_bad_node(attempts):
            self._set_aside(outcome)
        self._verdicts.health.refuse_repeats(study.name, task)
        self._outage.refuse(study.name)

    def _set_aside(self, last: Failed | Infeasible) -> None:
        """Ends this worker's part: runs of several candidates failed here alone, so they say nothing about them."""
        failed = self._verdicts.health.died
        self._ask(lambda: self._hand.ledger.give_back(self._study, failed))
        why = why_set_aside(failed, self._hand.ledger.me.node, last.message)
        self._errors.append(DsoptError(f"study '{self._study.name}': {why}"))

    def _avoid_what_failed(self, task: Task, outcome: Failed) -> None:
        """Goes on without a GPU of its own that has failed, and takes nodes that it has lost only if it must."""
        if outcome.retryable and outcome.reason != "taken":
            self._hand.speed.measure_again()
        if outcome.device is not None:
            self.faulty.add(outcome.device)
            self._hand.tell(DeviceSetAside(task=task, device=outcome.device, why=outcome.message))
        self._hand.avoid_node(task, outcome)

    def _keep_aio(self, study: StoredStudy, aio: Any) -> None:  # noqa: ANN401 - a section of a configuration
        if self._ask(lambda: self._asker.snapshot().history.aio) is None:
            self._ask(lambda: self._hand.ledger.mark_part(study, REFERENCE, {AIO: dict(aio)}))

    def _settle(self, fenced: Fenced) -> None:
        """Goes on after a write that came too late."""
        if isinstance(fenced, StudyGone):
            self._leaving.set()
        elif isinstance(fenced, WorkerGone):
            self._leave_runs()
            self._hand.ledger.me = self._ask(self._heart.renew)
            self._asker.look_again()
        elif isinstance(fenced, WorkerDrains):
            self._ending.drain.set()

    def _leave_runs(self) -> None:
        """Waits until the runs of a worker that others took for dead have ended: the heart has told the lanes to."""
        self._heart.bury()
        for lane in self._lanes:
            while lane.in_hand is not None and lane.in_hand.ended is None:
                self._wake.wait(_BUSY_SECONDS)
                self._wake.clear()

    def _finish_runs(self) -> None:
        """Records what the runs in hand come to after an error, as far as the database allows."""
        while self._count_in_hand():
            for lane in self._lanes:
                if lane.in_hand is not None and lane.in_hand.ended is not None:
                    try:
                        self._record(lane, lane.in_hand)
                    except Exception:
                        lane.in_hand = None
            self._wait()

    def _bears_company(self, spec: Any, round_: int, candidate: Any, is_new: bool) -> bool:  # noqa: ANN401
        return self._company.bears(spec, round_, candidate, is_new=is_new, in_hand=self._count_in_hand())

    def _count_in_hand(self) -> int:
        return sum(lane.in_hand is not None for lane in self._lanes)

    def _others(self) -> set[str]:
        """Other nodes that work on the study."""
        return nodes_at_work(self._hand.store.engine, self._study.id) - {self._hand.ledger.me.node}

    def _is_avoided(self, trial: tuple[Part, int]) -> bool:
        return self._outage.avoids(trial) or (self._verdicts.health.avoids(trial) and bool(self._others()))
