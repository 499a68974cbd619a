"""dsopt's own tables with values that dsopt cannot have written: whatever reads them says so."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from dsopt.cli.main import dsopt as command
from dsopt.errors import DsoptError
from dsopt.store.tables import metadata
from tests.api.dry import dry_run

WRONG = ("'x'", "CAST(x'ff' AS TEXT)", "9e999")
LOOKS = {"dsopt_workers": ("workers",), "dsopt_leases": ("worker dry --devices cpu:2",)}
WORKER = {
    "id": "w", "node": "n", "host": "h", "pid": 1, "process_started": 1, "dsopt_version": "1", "registered_at": 1,
    "heartbeat_at": 1, "draining": 0,
}  # fmt: skip
LEASE = {"node": "n", "device": "cpu:0", "host": "h", "run_dir": "/no/such/folder", "attempt_id": "a"}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a finished study, a worker and a lease."""
    folder = tmp_path_factory.mktemp("altered")
    (folder / "dry.yaml").write_text(json.dumps(dry_run(folder, confirmation={"finalists": 1, "rounds": 1})))
    for words in (f"study create {folder / 'dry.yaml'}", "worker dry --devices cpu:2"):
        assert look(words, folder / "first.db").exit_code == 0
    with sqlite3.connect(folder / "first.db") as first, sqlite3.connect(folder / "whole.db") as whole:
        first.backup(whole)
        for table, row in (("dsopt_workers", WORKER), ("dsopt_leases", LEASE)):
            places = ", ".join("?" * len(row))
            whole.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", list(row.values()))
        whole.commit()
        whole.execute("PRAGMA journal_mode = delete")
    return folder / "whole.db"


def look(words: str, database: Path) -> Result:
    return CliRunner().invoke(command, words.split(), env={"DSOPT_STORAGE": f"sqlite:///{database}"})


@pytest.mark.parametrize("table", sorted(metadata.tables))
def test_a_wrong_value_anywhere_is_no_traceback(database: Path, tmp_path: Path, table: str) -> None:
    told = set()
    for column in metadata.tables[table].columns.keys():  # noqa: SIM118 - its columns cannot be compared
        for value in WRONG:
            copy = tmp_path / f"{column}-{WRONG.index(value)}.db"
            shutil.copy(database, copy)
            try:
                with sqlite3.connect(copy) as connection:
                    first = f"rowid = (SELECT min(rowid) FROM {table})"
                    connection.execute(f"UPDATE {table} SET {column} = {value} WHERE {first}")
            except sqlite3.IntegrityError:
                continue  # the database itself refuses it
            for words in LOOKS.get(table, ("study list", "study show dry")):
                failed = look(words, copy).exception
                assert isinstance(failed, DsoptError | sa.exc.OperationalError | SystemExit | None), (column, value)
                told.add(str(failed).partition(":")[0])
            copy.unlink()
    assert any("in dsopt's own tables, where it keeps" in words for words in told) or table == "dsopt_leases"
