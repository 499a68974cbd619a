"""Errors of a database say which one it is, and what to do."""

from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from dsopt.cli import main
from dsopt.store.studies import Store
from dsopt.store.trouble import database_error, database_of, is_away
from tests.store.ledger import spec

TROUBLES = {
    "PRAGMA max_page_count = 1": "database or disk is full. Free some space on the disk that the database is on",
    "PRAGMA query_only = on": "attempt to write a readonly database. Check that the file and its folder are there",
}


@pytest.mark.parametrize(("pragma", "expected"), TROUBLES.items())
def test_an_error_says_which_database_and_what_to_do(
    pragma: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/dsopt.db", make=True)

    @sa.event.listens_for(store.engine, "checkout")
    def _(connection: sa.pool.PoolProxiedConnection, *_: object) -> None:
        connection.cursor().execute(pragma)

    def fail(**_: object) -> None:
        for number in range(100):  # until the pages that the file has are full
            store.create(spec().model_copy(update={"name": f"s{number}"}))

    monkeypatch.setattr(main, "dsopt", fail)
    with pytest.raises(SystemExit, match="1"):
        main.main()
    error = capsys.readouterr().err
    assert error.startswith(f"error: sqlite:///{tmp_path}/dsopt.db: {expected}")
    assert error.count("\n") == 1
    store.close()


def test_a_server_without_a_connection_left_says_what_to_do(postgres: str, postgres_url: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 1")
    url = sa.make_url(postgres_url).set(drivername="postgresql+psycopg", username="crowded")
    first, second = (sa.create_engine(url, poolclass=sa.NullPool) for _ in range(2))
    with first.connect(), pytest.raises(sa.exc.OperationalError) as caught, second.connect():
        pass
    assert "End some of its clients, or allow more" in str(database_error(caught.value))


def test_a_connection_that_only_reads_is_given_up(postgres_url: str) -> None:
    """As after a failover, or once a host has made a database read-only: a new connection may write."""
    store = Store.open(postgres_url, make=True)
    write = sa.text("CREATE TABLE IF NOT EXISTS written (number integer)")
    with store.engine.connect() as connection:
        connection.exec_driver_sql("SET default_transaction_read_only = on")
        connection.commit()
        process = connection.connection.dbapi_connection.info.backend_pid  # type: ignore[union-attr]
        with pytest.raises(sa.exc.InternalError) as caught:
            connection.execute(write)
    assert is_away(caught.value)
    for _ in range(5):
        with store.engine.begin() as connection:
            assert connection.connection.dbapi_connection.info.backend_pid != process  # type: ignore[union-attr]
            connection.execute(write)
    store.close()


def test_other_errors_are_none_of_a_database() -> None:
    assert database_error(OSError("no space")) is None
    assert database_of(ValueError()) == "the database"
