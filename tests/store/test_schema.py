"""The schema: made by many at once, upgraded from every revision, refused when it is newer."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg.conninfo import conninfo_to_dict

from dsopt.errors import DsoptError
from dsopt.store import engine, schema
from dsopt.store.backup import refuse_to_lose
from dsopt.store.revision import VERSION_TABLE, known_revisions, state
from dsopt.store.studies import Store
from dsopt.store.tables import ATTEMPT_STATES, metadata
from dsopt.store.url import for_programs, shown, storage_url
from dsopt.store.workers import beat, register

REVISIONS = known_revisions()
OLD_REVISIONS = [revision for revision in REVISIONS if revision < "0004"]  # with numbers for ids
ROWS_OF_A_RUN = (
    "INSERT INTO dsopt_workers (node, host, pid, process_started, heartbeat_at) VALUES ('n', 'h', 1, 1, 1)",
    "INSERT INTO dsopt_claims (study_id, stage, candidate, round, trial, worker_id) VALUES (1, 'z0', 'c', 0, 0, 1)",
    "INSERT INTO dsopt_attempts (study_id, stage, trial, candidate, round, worker_id, state, run_dir, started_at) "
    "VALUES (1, 'z0', 0, 'c', 0, 1, 'measured', '/r', 1)",
    "INSERT INTO dsopt_leases (node, device, attempt_id) VALUES ('n', 'cpu:0', 1)",
    "INSERT INTO dsopt_measurements (attempt_id, metric, step_seconds, half_width_seconds, samples_per_second, "
    "peak_memory_bytes, details) VALUES (1, 1, 1, 1, 1, 1, '{}')",
)
ROOT = Path(__file__).parent.parent.parent


def connect(url: str) -> sa.Engine:
    return engine.connect(storage_url(url))


def differences(connected: sa.Engine) -> list:
    """What the tables that stand there lack against those that are declared."""
    with connected.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "version_table": VERSION_TABLE,
                "include_name": lambda name, kind, _: kind != "table" or name.startswith("dsopt_"),
                "include_object": lambda _, name, *rest: name != VERSION_TABLE,
                "compare_type": True,
            },
        )
        return compare_metadata(context, metadata)


def test_the_names_of_files_tell_the_revisions_in_their_order() -> None:
    scripts = ScriptDirectory.from_config(schema._alembic_config())
    assert [script.revision for script in scripts.walk_revisions()][::-1] == REVISIONS


def test_the_newest_revision_is_exactly_the_declared_tables(storage_url: str) -> None:
    connected = connect(storage_url)
    assert state(connected).revision is None
    assert schema.upgrade(connected).is_current
    assert differences(connected) == []
    connected.dispose()


def add_a_run(connection: sa.Connection) -> None:
    """Rows as the first three revisions had them: of a run whose worker died long ago."""
    columns, values = "name, spec, digest, state, created_at", "'old', '{}', 'd', 'created', 1"
    connection.execute(sa.text(f"INSERT INTO dsopt_studies ({columns}) VALUES ({values})"))
    for statement in ROWS_OF_A_RUN:
        connection.execute(sa.text(statement))


@pytest.mark.parametrize("revision", OLD_REVISIONS)
def test_every_earlier_revision_is_upgraded_with_its_content(storage_url: str, revision: str) -> None:
    connected = connect(storage_url)
    schema.upgrade(connected, revision)
    with connected.begin() as connection:
        add_a_run(connection)
    with pytest.raises(DsoptError, match=r"was made by an older dsopt.*dsopt db upgrade"):
        Store.open(storage_url, make=True)
    with pytest.raises(DsoptError, match=r"was made by an older dsopt.*dsopt db upgrade"):
        refuse_to_lose(connected, replace=True)
    assert schema.upgrade(connected).is_current
    assert differences(connected) == []
    with connected.connect() as connection:
        [study] = connection.execute(sa.text("SELECT id, name, version FROM dsopt_studies")).all()
        assert (len(study.id), study.name, study.version) == (32, "old", 0)
        [attempt] = connection.execute(sa.text("SELECT id, study_id, state FROM dsopt_attempts")).all()
        assert (attempt.study_id, attempt.state) == (study.id, "measured")
        assert connection.execute(sa.text("SELECT attempt_id FROM dsopt_measurements")).scalars().all() == [attempt.id]
        [claim] = connection.execute(sa.text("SELECT study_id, worker_id FROM dsopt_claims")).all()
        assert tuple(claim) == (study.id, None)
        for table in ("workers", "leases"):  # of a worker that is dead
            assert connection.execute(sa.text(f"SELECT count(*) FROM dsopt_{table}")).scalar_one() == 0
    check_attempts(connected, study.id)
    connected.dispose()


def test_a_worker_that_is_silent_during_an_upgrade_cannot_come_back(storage_url: str) -> None:
    """Its code is older than the tables."""
    connected = connect(storage_url)
    schema.upgrade(connected, REVISIONS[-2])
    me = register(connected)
    with connected.begin() as connection:
        connection.execute(sa.text("UPDATE dsopt_workers SET heartbeat_at = 1"))
    schema.upgrade(connected)
    assert beat(connected, me, None, None) is None
    connected.dispose()


def test_a_database_that_an_older_worker_still_uses_is_not_upgraded(storage_url: str) -> None:
    connected = connect(storage_url)
    schema.upgrade(connected, OLD_REVISIONS[-1])
    with connected.begin() as connection:
        add_a_run(connection)
        beats = sa.text("UPDATE dsopt_workers SET heartbeat_at = :now, node = 'node7', pid = 123")
        connection.execute(beats, {"now": time.time()})
    refusal = r"workers of an older dsopt or Optuna still work.*: node7 \(process 123\)\. Stop them"
    with pytest.raises(DsoptError, match=refusal):
        schema.upgrade(connected)
    assert state(connected).revision == OLD_REVISIONS[-1]
    with connected.begin() as connection:
        assert connection.execute(sa.text("SELECT id FROM dsopt_studies")).scalars().all() == [1]
        connection.execute(beats, {"now": time.time() + 30 * 86400})  # it died before somebody set the clock back
    schema.upgrade(connected)
    assert state(connected).is_current
    connected.dispose()


def test_optunas_tables_are_not_upgraded_below_a_worker(storage_url: str) -> None:
    """Although dsopt's own are as they should be: it would write to tables that its Optuna does not know."""
    connected = connect(storage_url)
    schema.upgrade(connected)
    register(connected)
    with connected.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'v3.0.0.d'"))
    with pytest.raises(DsoptError, match="workers of an older dsopt or Optuna still work"):
        schema.upgrade(connected)
    connected.dispose()


def check_attempts(connected: sa.Engine, study_id: str) -> None:
    """A finished attempt is final, its states are the declared ones, and what belongs to it goes with it."""
    with pytest.raises(sa.exc.DBAPIError, match="a finished attempt never changes"), connected.begin() as connection:
        connection.execute(sa.text("UPDATE dsopt_attempts SET state = 'running'"))
    insert = "INSERT INTO dsopt_attempts (id, study_id, stage, trial, candidate, round, state, run_dir, started_at) "
    values = f"'{study_id}', 'z0', {{}}, 'c', 0, '{{}}', '/r', 1)"
    for number, ended in enumerate(ATTEMPT_STATES, start=1):
        with connected.begin() as connection:
            connection.execute(sa.text(insert + f"VALUES ('{number}', " + values.format(number, ended)))
    with pytest.raises(sa.exc.IntegrityError), connected.begin() as connection:
        connection.execute(sa.text(insert + "VALUES ('99', " + values.format(99, "whatever")))
    with connected.begin() as connection:
        connection.execute(sa.text("DELETE FROM dsopt_studies"))
        for table in ("attempts", "leases", "measurements"):
            assert connection.execute(sa.text(f"SELECT count(*) FROM dsopt_{table}")).scalar_one() == 0


def test_a_database_of_a_newer_revision_is_refused_and_left_alone(storage_url: str) -> None:
    connected = connect(storage_url)
    schema.upgrade(connected)
    with connected.begin() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for use in (schema.upgrade, schema.ensure):
        with pytest.raises(DsoptError, match="was made by a newer dsopt: it has revision 9999"):
            use(connected)
    assert state(connected).revision == "9999"
    connected.dispose()


def test_eight_upgrades_at_once_on_an_empty_database_all_succeed(storage_url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dsopt", "db", "upgrade", "--storage", storage_url]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path)
        for _ in range(8)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0] * 8, "\n".join(outputs)
    assert sum(": created; revision" in output for output in outputs) >= 1
    connected = connect(storage_url)
    assert differences(connected) == []
    connected.dispose()


def test_connections_that_switch_a_new_file_to_wal_at_once_all_succeed(tmp_path: Path) -> None:
    """SQLite itself refuses one of them now and then, without a wait: "database is locked"."""
    for attempt in range(100):
        url, together = f"sqlite:///{tmp_path / f'{attempt}.db'}", threading.Barrier(4)

        def open_and_close(url: str = url, together: threading.Barrier = together) -> None:
            together.wait()
            connect(url).dispose()

        with ThreadPoolExecutor(4) as pool:
            for opened in [pool.submit(open_and_close) for _ in range(4)]:
                opened.result()


def test_an_installed_wheel_carries_its_migrations(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path / "wheel", ROOT], check=True
    )
    [wheel] = (tmp_path / "wheel").glob("dsopt-*.whl")
    site = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    url = f"sqlite:///{tmp_path / 'wheel.db'}"
    script = "import dsopt, sys; assert dsopt.__file__.startswith(sys.argv.pop(1)); "
    script += "from dsopt.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, str(site), "db", "upgrade", "--storage", url],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"revision {REVISIONS[-1]}" in done.stdout


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_postgresql_database_that_cannot_hold_every_text_is_refused(postgres: str, encoding: str) -> None:
    name = f"of_{encoding.lower()}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    with pytest.raises(DsoptError, match=rf"stores text as {encoding}.*createdb --encoding=UTF8"):
        Store.open(postgres.replace("/postgres?", f"/{name}?"), make=True)


def test_another_applications_database_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    connected = connect(url)
    with connected.begin() as connection:
        connection.execute(sa.text("CREATE TABLE customers (id INTEGER)"))
    with pytest.raises(DsoptError, match="belongs to another application: it has tables such as 'customers'"):
        Store.open(url, make=True)
    with pytest.raises(DsoptError, match="there is no study yet"):
        Store.open(url)
    assert sa.inspect(connected).get_table_names() == ["customers"]
    connected.dispose()


def test_reading_makes_no_database(tmp_path: Path) -> None:
    with pytest.raises(DsoptError, match="no such file; there is no study yet"):
        Store.open(f"sqlite:///{tmp_path / 'folder' / 'mistyped.db'}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "not a database URL"),
        ("mysql://u:secret@h/d", "'mysql' is not supported"),
        ("sqlite://", "in memory"),
        ("postgresql://user:secret@127.0.0.1:1/none", "cannot be reached"),
        ("sqlite:////proc/none/dsopt.db", "cannot create its folder"),
        ("sqlite:////etc/passwd", "cannot be reached"),
        ("sqlite://host/x.db", "has no host"),
        ("postgresql://user:secret/none", "not a database URL"),
        ("postgresql://user:se@secret@127.0.0.1/none", "Write them as %40"),
        ("postgresql://user:se@db/secret@127.0.0.1:1/none", "Write them as %40"),
        ("postgresql://user:se@db?x=secret@127.0.0.1:1/none", "Write them as %40"),
        ("postgresql://user@127.0.0.1:1/none?password=secret", "cannot be reached"),
        ("postgresql://u:p@127.0.0.1:1/my%40db?application_name=me@lab&passfile=/a%40b/secret", "cannot be reached"),
        ("postgresql://user:secret@127.0.0.1:port/none", "not a database URL"),
    ],
)
def test_storage_mistakes_name_no_password(url: str, message: str) -> None:
    with pytest.raises(DsoptError) as caught:
        Store.open(url, make=True)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:secret@a.example:5432,b.example:5433/d?target_session_attrs=read-write",
        "postgresql://u:secret@/d?host=a.example:5432&host=b.example:5433&target_session_attrs=read-write",
    ],
)
def test_several_servers_of_a_cluster(text: str) -> None:
    """As PostgreSQL's programs take them, and as SQLAlchemy does."""
    url = storage_url(text)
    _, options = url.get_dialect()().create_connect_args(url)
    assert (options["host"], options["port"]) == ("a.example,b.example", "5432,5433")
    assert options["target_session_attrs"] == "read-write"
    assert "secret" not in shown(url)
    again = conninfo_to_dict(for_programs(url))  # as `pg_dump` reads it
    assert (again["host"], again["port"], again["dbname"], again["user"]) == (
        "a.example,b.example", "5432,5433", "d", "u")  # fmt: skip
    assert "password" not in again


def test_an_interrupted_upgrade_is_repeated(sqlite_url: str) -> None:
    """SQLite would otherwise keep the half of it that was done."""
    connected = connect(sqlite_url)
    schema.upgrade(connected, "0005")
    stop = "CREATE TRIGGER stop BEFORE UPDATE ON dsopt_claims BEGIN SELECT RAISE(ABORT, 'interrupted'); END"
    with connected.begin() as connection:
        studies = "id, name, spec, digest, state, version, created_at"
        connection.execute(sa.text(f"INSERT INTO dsopt_studies ({studies}) VALUES ('s', 's', '', '', 'stopped', 0, 0)"))
        claims = "study_id, stage, candidate, round, trial"
        connection.execute(sa.text(f"INSERT INTO dsopt_claims ({claims}) VALUES ('s', 'z0', 'c', 0, 0)"))
        connection.execute(sa.text(stop))
    with pytest.raises(sa.exc.DBAPIError, match="interrupted"):
        schema.upgrade(connected)
    assert state(connected).revision == "0005"
    with connected.begin() as connection:
        connection.execute(sa.text("DROP TRIGGER stop"))
    assert schema.upgrade(connected).is_current
    assert differences(connected) == []
    connected.dispose()
