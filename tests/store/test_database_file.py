"""SQLite's file is removed or replaced while a program has it open."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from psycopg.errors import InternalError_, ReadOnlySqlTransaction

from dsopt.store.engine import connect, exclusive
from dsopt.store.trouble import database_error, is_away
from dsopt.store.turns import Turns
from dsopt.store.url import storage_url


@pytest.fixture
def engine(sqlite_url: str) -> sa.Engine:
    engine = connect(storage_url(sqlite_url))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE kept (value INTEGER)")
    return engine


def write(engine: sa.Engine, value: int) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(f"INSERT INTO kept VALUES ({value})")


def values(engine: sa.Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.exec_driver_sql("SELECT value FROM kept").scalars())


def path_of(engine: sa.Engine) -> Path:
    return Path(str(engine.url.database))


def test_nothing_is_written_into_a_file_that_is_gone(engine: sa.Engine) -> None:
    write(engine, 1)
    aside = path_of(engine).with_name("aside.db")
    path_of(engine).rename(aside)
    for act in (lambda: write(engine, 2), lambda: exclusive(engine, "results-x").__enter__()):
        with pytest.raises(sa.exc.OperationalError) as refused:
            act()
        assert is_away(refused.value)
        assert "that the file and its folder are there" in (database_error(refused.value) or "")
    with Turns(engine, "x").take():
        pass
    assert not path_of(engine).exists(), "nobody makes a database without tables"
    assert [path.name for path in path_of(engine).parent.iterdir() if path.stat().st_mode & 0o077] == []
    aside.rename(path_of(engine))
    write(engine, 3)
    assert values(engine) == [1, 3]
    engine.dispose()


def test_what_is_written_goes_to_the_file_that_is_there_now(engine: sa.Engine, tmp_path: Path) -> None:
    with engine.connect() as held:
        other = connect(storage_url(f"sqlite:///{tmp_path}/other.db"))
        with other.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE kept (value INTEGER)")
        other.dispose()
        (tmp_path / "other.db").rename(path_of(engine))
        write(engine, 4)
        held.close()
        write(engine, 5)
    assert values(engine) == [4, 5]
    engine.dispose()


def test_a_file_of_something_else_is_not_waited_for(engine: sa.Engine, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "empty").rename(path_of(engine))
    with pytest.raises(sa.exc.OperationalError) as refused:
        write(engine, 1)
    assert not is_away(refused.value)
    assert "Another file is in the place of the database" in (database_error(refused.value) or "")
    engine.dispose()


def test_a_standby_is_waited_for_in_whatever_words() -> None:
    refused = ReadOnlySqlTransaction("cannot execute LISTEN during recovery")
    assert is_away(sa.exc.InternalError("LISTEN dsopt", {}, refused))
    assert not is_away(sa.exc.InternalError("LISTEN dsopt", {}, InternalError_("of another kind")))


def test_what_people_do_waits_for_a_lock_beside_a_file_that_nobody_may_write_to(engine: sa.Engine) -> None:
    path_of(engine).chmod(0o444)
    with exclusive(engine, "results-x"), Turns(engine, "x").take():
        pass
    assert {path.stat().st_mode & 0o777 for path in path_of(engine).parent.glob("*.lock")} == {0o644}
