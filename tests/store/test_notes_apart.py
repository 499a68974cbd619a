"""A note on a trial neither fails nor delays the outcome that it is about."""

import json
import logging
import time

import pytest
import sqlalchemy as sa
from optuna.trial import TrialState

from dsopt.store import trials
from dsopt.store.studies import Store
from dsopt.store.trouble import is_away
from dsopt.study.part import Part
from tests.store.ledger import begin, ledger_of, measured, new_task, spec

FAULTS = {  # the only trial has the id 1
    "sqlite": (
        "CREATE TRIGGER no_notes BEFORE INSERT ON study_system_attributes WHEN substr(NEW.key, 1, 11) = 'dashboard:1' "
        "BEGIN SELECT RAISE(ABORT, 'planted'); END",
    ),
    "postgresql": (
        "CREATE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'planted'; END $$",
        "CREATE TRIGGER no_notes BEFORE INSERT ON study_system_attributes FOR EACH ROW "
        "WHEN (substr(NEW.key, 1, 11) = 'dashboard:1') EXECUTE FUNCTION planted()",
    ),
}


def end_one(store: Store) -> None:
    study, _ = store.create(spec())
    ledger = ledger_of(store)
    task, attempt = begin(ledger, study, new_task(), store)
    ledger.end(study, task, attempt, measured(), {}, is_told=True)


def check_recorded(store: Store) -> None:
    study = store.get("s")
    [trial] = store.optuna_study(study, Part("z0")).trials
    assert trial.state == TrialState.COMPLETE and trial.value and "peak_memory_bytes" in trial.user_attrs
    [run] = store.runs(study)
    assert run["state"] == "measured" and run["metric"] == pytest.approx(trial.value)


def test_a_database_that_refuses_the_note_keeps_the_outcome(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with store.engine.begin() as connection:
        for statement in FAULTS[connection.dialect.name]:
            connection.exec_driver_sql(statement)
    with caplog.at_level(logging.WARNING):
        end_one(store)
    check_recorded(store)
    [record] = caplog.records
    told = record.getMessage()
    assert told.startswith("Optuna's trial 0 of s/z0 has no note: ") and "planted" in told
    assert "INSERT" not in told and "\n" not in told


def test_a_note_that_cannot_be_made_keeps_the_outcome(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise ValueError("planted")

    monkeypatch.setattr(trials, "trial_note", broken)
    with caplog.at_level(logging.WARNING):
        end_one(store)
    check_recorded(store)
    assert [record.getMessage() for record in caplog.records] == ["Optuna's trial 0 of s/z0 has no note: planted"]


def test_a_note_does_not_wait_for_somebody_who_writes_one(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody else holds the very row; without a limit, the outcome would wait for the 15 s of the database."""
    store = Store.open(postgres_url, make=True)
    try:
        study, _ = store.create(spec())
        ledger = ledger_of(store)
        task, attempt = begin(ledger, study, new_task(), store)
        found = store.optuna_study(study, Part("z0"))
        key, owner = f"dashboard:{found.trials[0]._trial_id}:note_ver", found._study_id
        insert = sa.text("INSERT INTO study_system_attributes (study_id, key, value_json) VALUES (:owner, :key, :text)")
        with store.engine.connect() as other, caplog.at_level(logging.WARNING):
            other.execute(insert, {"owner": owner, "key": key, "text": json.dumps(1)})
            began = time.monotonic()
            ledger.end(study, task, attempt, measured(), {}, is_told=True)
            assert time.monotonic() - began < 10
            other.rollback()
        check_recorded(store)
        assert "has no note: " in caplog.text
    finally:
        store.close()


def test_a_connection_that_is_lost_at_the_note_is_no_outcome(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever tells it waits for the database, and tells it again."""

    def lose(connection: sa.Connection, *_: object) -> None:
        connection.invalidate()
        raise sa.exc.OperationalError("INSERT", {}, Exception("server closed the connection"))

    monkeypatch.setattr(trials.optuna_rows, "put_note", lose)
    with pytest.raises(sa.exc.SQLAlchemyError) as raised:
        end_one(store)
    assert is_away(raised.value)
    [run] = store.runs(store.get("s"))
    assert run["state"] == "running"
