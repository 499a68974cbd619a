"""What follows from the outcome of a run: it is told, or the run is tried again, here or on another node."""

from collections.abc import Collection, Sequence

from dsopt.experiment.outcome import Failed, Outcome
from dsopt.launch.placers.placer import ChoosingPlacer
from dsopt.store.attempts import Task
from dsopt.store.queries import Row
from dsopt.store.stored import StoredStudy
from dsopt.study.part import REFERENCE
from dsopt.worker.blame import NodeHealth, Verdict, may_be_chance, verdict
from dsopt.worker.company import Company
from dsopt.worker.hand import Hand
from dsopt.worker.happenings import RunsAlone
from dsopt.worker.lanes import RunInHand
from dsopt.worker.outage import Outage
from dsopt.worker.proofs import (
    attempts_of,
    failed_here_alone,
    failed_on,
    has_been_tried,
    has_failed,
    is_word_of_one,
    proofs,
    proofs_needed,
    where_nobody_chooses,
)


class Verdicts:
    """Decides for one worker and study, by what this worker's runs have shown, and the attempts of all.

    Attributes:
        health: of this worker's node.
        company: whether runs bear others beside them.
        outage: whether the machine is well.
    """

    def __init__(self, hand: Hand, study: StoredStudy) -> None:
        self._hand, self._study = hand, study
        self.health, self.company, self.outage = NodeHealth(), Company(), Outage(hand.tell)

    def of(self, run: RunInHand, outcome: Outcome, attempts: Sequence[Row], others: Collection[str]) -> Verdict:
        """What follows from an outcome.

        Args:
            run: what came to it.
            outcome: what it is.
            attempts: all of the study, if it was not measured.
            others: other nodes at work on the study.
        """
        task, bore_company, most = run.assignment.task, not self.company.bears_none, self._study.spec.max_attempts
        me = self._hand.ledger.me.node
        nodes: Sequence[str] = run.assignment.nodes or (me,)
        if isinstance(self._hand.pool.placer, ChoosingPlacer):
            given, attempts = attempts, where_nobody_chooses(attempts, task, most)
            nodes = nodes if attempts is given else (me,)
        is_said = isinstance(outcome, Failed) and outcome.reason == "machine"
        # a comparison begins nothing that would prove something
        may_wait = is_said or (most > 1 and not self._study.spec.compare)
        needed = proofs_needed(attempts, task, outcome, nodes, most, {*others, me}) if may_wait else 0
        is_fault = needed > 0
        is_doubtful = self.company.is_doubtful(task, outcome, had_company=run.had_company)
        self.outage.note(task, outcome, is_fault=is_said or (is_fault and not is_doubtful))
        if is_doubtful:
            return "again"
        may_move = most > 1 and not (self._study.spec.compare or isinstance(self._hand.pool.placer, ChoosingPlacer))
        is_one_nodes_word = may_move and is_word_of_one(attempts, task, outcome, nodes, others)
        self.health.note(task, outcome, is_fault=is_fault or is_one_nodes_word)
        if bore_company and self.company.bears_none:
            self._hand.tell(RunsAlone(task=task))
        if not has_failed(outcome):
            return "elsewhere" if is_one_nodes_word else "tell"
        if is_fault:
            proved = proofs(attempts, task.key) if self._is_tried(attempts, task, others) else 0
            if self.outage.is_own(task, proved, needed):
                return "tell"
            return "elsewhere" if {*others}.difference(failed_on(attempts, task.key)) else "again"
        if may_wait and outcome.reason == "timeout" and self._is_left_to_another(attempts, task, others):
            return "elsewhere"
        if not may_be_chance(task, outcome):
            return "tell"
        before = [row for row in attempts_of(attempts, task.key) if row["id"] != run.assignment.attempt.id]
        counted = before[self.company.failed_beside_others(task) :]
        return verdict(outcome, counted, most, node=me, others_live=bool(others))

    def _is_tried(self, attempts: Sequence[Row], task: Task, others: Collection[str]) -> bool:
        me, most = self._hand.ledger.me.node, self._study.spec.max_attempts
        return has_been_tried(attempts, task.key, {*others, me}, most, also=[me])

    def _is_left_to_another(self, attempts: Sequence[Row], task: Task, others: Collection[str]) -> bool:
        """Whether a run that took too long is left to another node, but not many of them, as they cost much."""
        on = failed_on(attempts, task.key)
        is_new = {*on} <= {self._hand.ledger.me.node} and len(on) <= self._study.spec.max_attempts
        return is_new and not self._is_tried(attempts, task, others)

    def is_bad_node(self, attempts: Sequence[Row]) -> bool:
        """Whether runs of several candidates failed here, one after the other, and nowhere else."""
        failed = [task.key for task in self.health.died if task.part != REFERENCE]
        return self.health.is_suspect and failed_here_alone(attempts, failed, self._hand.ledger.me.node)
