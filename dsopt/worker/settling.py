"""Makes what a worker does and what the database knows of it one again, after a time without answers.

An answer may have been lost with the connection. Or the database is an older copy, as after a failover or a restore.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dsopt.experiment.outcome import Cancelled, Outcome
from dsopt.store.attempts import Attempt, Task
from dsopt.store.stored import StoredStudy
from dsopt.store.transactions import Fenced
from dsopt.study.trial_attributes import TrialAttributes
from dsopt.worker.hand import Hand
from dsopt.worker.lanes import RunInHand
from dsopt.worker.spooled import attributes_noted, left_by


def settle(
    hand: Hand, study: StoredStudy, lanes: Sequence[RunInHand | None], ask: Callable[[Callable[[], Any]], Any]
) -> None:
    """Ends in the database what this worker does not run, and gives it back; ends here what the database does not know.

    Args:
        hand: in whose name.
        study: what the worker works on.
        lanes: the run of each lane, if it has one.
        ask: asks the database.
    """
    ledger = hand.ledger
    held = {run.assignment.attempt.id: run for run in lanes if run is not None}
    tasks = {run.assignment.task.key for run in held.values()}
    with contextlib.suppress(Fenced):
        running = ask(lambda: ledger.running(study))
        for run in held.values():  # others may have its devices by now
            run.is_unknown = run.assignment.attempt.id not in {attempt.id for _, attempt in running}
        for task, attempt in running:
            if attempt.id not in held:
                outcome, left = ask(partial(_outcome, hand, study, task, attempt))
                ask(partial(ledger.end, study, task, attempt, outcome, left, is_told=True))
        for task in ask(lambda: ledger.claimed(study)):
            if task.key not in tasks:
                ask(partial(ledger.leave, study, task))


def _outcome(hand: Hand, study: StoredStudy, task: Task, attempt: Attempt) -> tuple[Outcome, TrialAttributes]:
    """What an attempt came to that is over, although the database says that it runs, and what it has left."""
    found = next((row for row in hand.store.attempts_for(study, task) if row["id"] == attempt.id), None)
    if found is None:
        return Cancelled(), TrialAttributes()
    return left_by(study.spec, found) or Cancelled(), attributes_noted(study.spec, found)
