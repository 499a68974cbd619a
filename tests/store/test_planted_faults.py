"""What `test_anything.py` does finds each fault that is planted here: a fence that is gone, something left behind.

Each has a seed with which it is found within ten examples; with others it takes longer.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import hypothesis
import pytest
import sqlalchemy as sa
from hypothesis.stateful import run_state_machine_as_test

from dsopt.errors import DsoptError
from dsopt.store import claims, lease_queries, ledger, optuna_rows, queries
from dsopt.store.studies import Store
from dsopt.store.tables import leases
from tests.store.test_anything import SETTINGS, Machine, stores  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow


def without(key: str, write: Callable[..., Any]) -> Callable[..., Any]:
    """A write that is not fenced by that."""
    return lambda *args, **keys: write(*args, **{**keys, key: None})


def true(*_: object, **__: object) -> bool:
    return True


def false(*_: object, **__: object) -> bool:
    return False


def lose_attempts_and_leases(connection: sa.Connection, worker_id: str, message: str) -> None:
    """Devices are free before their processes are gone."""
    lost = [row["id"] for row in queries.running_attempts(connection, worker_id)]
    LOSE(connection, worker_id, message)
    connection.execute(sa.delete(leases).where(leases.c.attempt_id.in_(lost)))


LOSE = queries.lose_attempts
FAULTS = {
    "a write without its worker": (6, queries, "keep_worker", false),
    "a run that others have decided against": (1, queries, "change_study", without("decisions", queries.change_study)),
    "the living are buried": (3, queries, "delete_worker", without("beat", queries.delete_worker)),
    "devices are free too early": (1, queries, "lose_attempts", lose_attempts_and_leases),
    "begun without a claim": (6, claims, "has", true),
    "reported without an attempt": (6, queries, "has_attempt", true),
    "devices stay leased": (1, lease_queries, "end_leases", lambda *_, **__: None),
    "claims stay": (12, claims, "release", lambda *_, **__: None),
    "Optuna's studies stay": (1, optuna_rows, "delete_studies", lambda *_: None),
    "Optuna is not told": (1, ledger.trials, "end", lambda *_: None),
    "dsopt keeps no outcome": (1, claims, "end", true),
}


@pytest.mark.parametrize("storage_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_planted_fault_is_found(stores: list[Store], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    seed, *planted = FAULTS[fault]
    monkeypatch.setattr(*planted)
    machine = hypothesis.seed(seed)(partial(Machine, stores))
    settings = hypothesis.settings(
        SETTINGS, phases=[hypothesis.Phase.generate], max_examples=1000, report_multiple_bugs=False
    )
    with pytest.raises((AssertionError, sa.exc.SQLAlchemyError, DsoptError, hypothesis.errors.Flaky)):
        run_state_machine_as_test(machine, settings=settings)
