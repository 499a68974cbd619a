"""The storage and its clock: what stops a study, said with what to do, and nothing changed by looking."""

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from dsopt.doctor import storage
from dsopt.doctor.check import Check
from dsopt.store import engine, examine, revision, schema
from dsopt.store.url import storage_url


def checked(url: str) -> list[Check]:
    return list(storage.check_storage(lambda: url))


def statuses(found: list[Check]) -> list[tuple[str, str]]:
    return [(one.name, one.status) for one in found]


def made(url: str, revision: str = "head") -> sa.Engine:
    connected = engine.connect(storage_url(url))
    schema.upgrade(connected, revision)
    return connected


def test_a_current_database_is_ok_and_stays_as_it_was(storage_url: str) -> None:
    made(storage_url).dispose()
    found = checked(storage_url)
    assert statuses(found) == [("storage", "ok"), ("clock", "ok")]
    assert "has the current revision" in found[0].message


def test_looking_creates_nothing(sqlite_url: str, tmp_path: Path) -> None:
    found = checked(sqlite_url)
    assert statuses(found) == [("storage", "ok"), ("clock", "skipped")]
    assert "does not exist yet" in found[0].message
    assert list(tmp_path.iterdir()) == []


def test_an_sqlite_file_is_the_same_before_and_after(sqlite_url: str, tmp_path: Path) -> None:
    made(sqlite_url).dispose()
    [path] = [path for path in (tmp_path / "storage").iterdir() if path.suffix == ".db"]
    before = path.read_bytes()
    files = sorted(tmp_path.rglob("*"))
    checked(sqlite_url)
    assert path.read_bytes() == before
    assert sorted(tmp_path.rglob("*")) == files


def test_an_old_revision_says_how_to_upgrade(storage_url: str) -> None:
    made(storage_url, "0004").dispose()
    [found, clock] = checked(storage_url)
    assert (found.status, found.fix, clock.status) == ("problem", "dsopt db upgrade", "skipped")
    assert "older dsopt (revision 0004" in found.message


def test_a_newer_revision_is_a_problem(sqlite_url: str) -> None:
    connected = made(sqlite_url)
    with connected.begin() as connection:
        connection.execute(sa.text(f"UPDATE {revision.VERSION_TABLE} SET version_num = '9999'"))
    connected.dispose()
    [found, _] = checked(sqlite_url)
    assert found.status == "problem"
    assert "newer dsopt" in found.message


def test_an_empty_database_is_ok_and_gets_no_tables(postgres_url: str) -> None:
    [found, clock] = checked(postgres_url)
    assert (found.status, clock.status) == ("ok", "ok")
    assert "is empty; the first study creates its tables" in found.message
    connected = engine.connect(storage_url(postgres_url))
    assert sa.inspect(connected).get_table_names() == []
    connected.dispose()


def test_another_applications_file_is_refused_and_not_switched_to_wal(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER)")
    connection.close()
    before = path.read_bytes()
    [found, _] = checked(f"sqlite:///{path}")
    assert found.status == "problem"
    assert "belongs to another application" in found.message
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("buy milk\n" * 200)
    [found, _] = checked(f"sqlite:///{path}")
    assert found.status == "problem"
    assert "file is not a database" in found.message


def test_a_server_that_is_away_is_a_problem_without_the_password() -> None:
    [found, _] = checked("postgresql://me:s3cretpassword@127.0.0.1:1/nothing")
    assert found.status == "problem"
    assert "cannot be reached" in found.message
    assert "s3cretpassword" not in found.message


def test_a_reader_may_not_write(postgres_url: str) -> None:
    connected = made(postgres_url)
    with connected.begin() as connection:
        name = connection.execute(sa.text("SELECT current_database()")).scalar_one()
        connection.execute(sa.text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'))
    connected.dispose()
    [found, _] = checked(postgres_url)
    assert found.status == "problem"
    assert "read-only transaction" in found.message
    assert "docs/operations.md" in found.message


@pytest.mark.parametrize(("seconds", "status"), [(0.0, "ok"), (-1.9, "ok"), (5.0, "warning"), (-3600.0, "warning")])
def test_a_clock_that_differs_is_named(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, seconds: float, status: str
) -> None:
    made(postgres_url).dispose()
    now = examine.clock.now
    monkeypatch.setattr(examine.clock, "now", lambda connection: now(connection) - sa.literal(seconds))
    [found, clock] = checked(postgres_url)
    assert (found.status, clock.status) == ("ok", status)
    assert ("timedatectl" in clock.fix) == (status == "warning")
