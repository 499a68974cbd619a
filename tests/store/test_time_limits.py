"""A worker that is frozen in the middle of a transaction stops nobody for good."""

import subprocess
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from dsopt.launch.processes import processes_of
from dsopt.protocol.run_dir import RUN_DIR_VARIABLE
from dsopt.store import engine
from dsopt.store.studies import Store
from dsopt.store.transactions import changing
from dsopt.store.trouble import is_away
from dsopt.store.workers import leave
from tests.store.ledger import begin, ledger_of, new_task, spec, sweep_now
from tests.studies import until


def test_postgres_takes_the_study_from_who_is_frozen_in_a_transaction(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others get it once the server has ended the frozen one's transaction: here after a second."""
    first = Store.open(postgres_url, make=True)
    study, _ = first.create(spec())  # without the limit: that takes its time
    first.close()
    monkeypatch.setattr(
        engine,
        "_POSTGRES_SESSION",
        engine._POSTGRES_SESSION.replace("session_timeout = '15s'", "session_timeout = '1s'"),
    )
    store, other = Store.open(postgres_url), Store.open(postgres_url)
    is_held, goes_on = threading.Event(), threading.Event()
    lost: list[BaseException] = []

    def freeze() -> None:
        try:
            with changing(store.engine, study.id, state="searching"):
                is_held.set()
                goes_on.wait(60)
        except sa.exc.DBAPIError as error:
            lost.append(error)

    frozen = threading.Thread(target=freeze)
    frozen.start()
    assert is_held.wait(60)
    with changing(other.engine, study.id, state="confirming"):
        pass
    goes_on.set()
    frozen.join(60)
    assert len(lost) == 1
    assert is_away(lost[0])  # it waits and goes on, as after any dropped connection
    assert store.get("s").state == "confirming"
    store.close()
    other.close()


def test_every_connection_to_postgres_has_limits(postgres_url: str) -> None:
    """dsopt's own and those of Optuna."""
    store = Store.open(postgres_url, make=True)
    store.create(spec())
    engines = [store.engine, *store._optuna.engines]
    assert len(engines) == 2
    for one in engines:
        with one.connect() as connection:
            for limit in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
                assert connection.execute(sa.text(f"SHOW {limit}")).scalar_one() in ("15s", "1min"), (one, limit)
    store.close()


def test_processes_are_ended_only_after_their_run_is_recorded_as_lost(storage_url: str, tmp_path: Path) -> None:
    store = Store.open(storage_url, make=True)
    study, _ = store.create(spec())
    one, two = ledger_of(store), ledger_of(store)
    run_dir = tmp_path / "run"
    begin(one, study, new_task(), store, str(run_dir))
    sleeper = subprocess.Popen(["sleep", "600"], env={RUN_DIR_VARIABLE: str(run_dir)})
    try:
        until(lambda: [process.pid for process in processes_of(run_dir)] == [sleeper.pid])  # after its exec
        assert sweep_now(store, two) == 0
        assert processes_of(run_dir)
        leave(store.engine, one.me)
        assert sweep_now(store, two) == 1
        assert not processes_of(run_dir)
    finally:
        sleeper.kill()
        sleeper.wait()
        store.close()
