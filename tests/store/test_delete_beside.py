"""A study that is deleted while its worker still writes, on PostgreSQL: SQLite lets one write at a time."""

import threading
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from dsopt.store import optuna_rows
from dsopt.store.studies import Store
from dsopt.store.transactions import AttemptOver
from tests.store.ledger import begin, ledger_of, new_task, spec


@pytest.mark.parametrize("had_it", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_who_writes_on_a_trial_is_waited_for(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, when: str, had_it: bool
) -> None:
    """It ended with a foreign key that was violated, or with a deadlock."""
    store, other = Store.open(postgres_url, make=True), Store.open(postgres_url)
    study, _ = store.create(spec())
    ledger = ledger_of(store)
    task, attempt = begin(ledger, study, new_task(), store)
    if had_it:
        ledger.report(study, task, attempt, {"so_far": 1}, None)
    assert store.stop(study, "stopped")
    mark = optuna_rows.mark

    def slow(connection: sa.Connection, trial_id: int, attributes: optuna_rows.Attributes) -> None:
        if when == "after":
            mark(connection, trial_id, attributes)
        deleting.start()
        deleting.join(0.5)  # it waits, or is over if it did not
        if when == "before":
            mark(connection, trial_id, attributes)

    monkeypatch.setattr(optuna_rows, "mark", slow)
    problems: list[BaseException] = []
    deleting = _thread(lambda: other.delete(study), problems)
    ledger.report(study, task, attempt, {"so_far": 2}, None)
    deleting.join(30)
    assert problems == []
    assert store.state(study) is None
    with pytest.raises(AttemptOver):
        ledger.report(study, task, attempt, {"so_far": 3}, None)
    store.close()
    other.close()


def _thread(does: Callable[[], object], problems: list[BaseException]) -> threading.Thread:
    def run() -> None:
        try:
            does()
        except BaseException as error:
            problems.append(error)

    return threading.Thread(target=run, daemon=True)
