"""Roles in PostgreSQL, made with the statements of `docs/operations.md`."""

import json
import re
import signal
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Dsopt
from tests.docker.files import OPERATIONS
from tests.studies import write_study

pytestmark = pytest.mark.slow

MADE = re.findall(r"^    ((?:CREATE|ALTER) ROLE .*;)$", OPERATIONS, re.MULTILINE)
GRANTS = re.search(r"```sql\n(.*?)```", OPERATIONS, re.DOTALL)
READING = (
    *(("study", "list"), ("study", "show", "simulated"), ("study", "best", "simulated"), ("diff", "simulated")),
    *(("workers",), ("report-issue", "simulated"), ("db", "check")),
)


@dataclass(frozen=True)
class Roles:
    """The command as each role."""

    owner: Dsopt
    worker: Dsopt
    reader: Dsopt
    url: str
    suffix: str


@pytest.fixture
def roles(tmp_path: Path, postgres: str, postgres_url: str) -> Iterator[Roles]:
    """A database whose owner has run `db upgrade`, and the grants of the document. Roles belong to the whole server."""
    suffix = uuid.uuid4().hex[:8]
    names = [f"dsopt_{name}_{suffix}" for name in ("owner", "worker", "reader")]

    def as_role(name: str) -> str:
        return re.sub(r"//[^@]*@", f"//{name}@", postgres_url)

    def of_test(statements: str) -> str:
        return re.sub(r"\b(dsopt_(?:owner|worker|reader))\b", rf"\1_{suffix}", statements)

    database = re.search(r"/(test_\w+)\?", postgres_url)
    assert database is not None
    with psycopg.connect(postgres, autocommit=True) as connection:
        for statement in MADE:
            connection.execute(of_test(statement))
        connection.execute(f"ALTER DATABASE {database[1]} OWNER TO {names[0]}")
    owner, worker, reader = (Dsopt(tmp_path, as_role(name)) for name in names)
    owner("db", "upgrade")
    assert GRANTS is not None
    with psycopg.connect(as_role(names[0]), autocommit=True) as connection:
        connection.execute(of_test(GRANTS[1]))
    yield Roles(owner, worker, reader, postgres_url, suffix)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {database[1]} WITH (FORCE)")
        for name in reversed(names):
            connection.execute(f"DROP ROLE {name}")


def test_one_role_works_and_one_reads(roles: Roles) -> None:
    folder = roles.worker.cwd
    write_study(folder, ds_config={"train_micro_batch_size_per_gpu": [4, 8], "zero_optimization": {"stage": [0]}})
    roles.worker("study", "create", "study.yaml")
    assert "is finished" in roles.worker("worker", "simulated", "--devices", "cpu:2")
    for command in READING:
        roles.reader(*command)
    _check_dashboard(roles.reader)
    for refused in (("study", "delete", "simulated", "--yes"), ("worker", "simulated")):
        before = roles.reader("study", "show", "simulated")
        output = roles.reader(*refused, code=0 if refused[0] == "worker" else 1)  # nothing is left to do there
        assert "Traceback" not in output
        assert roles.reader("study", "show", "simulated") == before


def test_who_may_only_read_is_told_so(roles: Roles) -> None:
    write_study(roles.reader.cwd)
    output = roles.reader("study", "create", "study.yaml", code=1)
    assert "read-only transaction" in output
    assert "docs/operations.md" in output
    roles.worker("study", "create", "study.yaml")
    assert "docs/operations.md" in roles.reader("worker", "simulated", "--devices", "cpu:2", code=1)
    assert "docs/operations.md" in roles.reader("study", "stop", "simulated", code=1)
    assert roles.reader.json("study", "list")[0]["state"] == "created"


def test_a_missing_grant_is_named(roles: Roles) -> None:
    with psycopg.connect(roles.url, autocommit=True) as connection:
        connection.execute(f"REVOKE SELECT ON dsopt_studies FROM dsopt_reader_{roles.suffix}")
    output = roles.reader("study", "list", code=1)
    assert "permission denied for table dsopt_studies" in output
    assert "docs/operations.md" in output


def _check_dashboard(reader: Dsopt) -> None:
    """Every page of data that the dashboard's own pages ask for."""
    process = reader.start("dashboard", "--port", "0")
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        address = re.search(r"http://\S+:\d+", line)
        assert address is not None, line + process.stdout.read()

        def get(path: str) -> dict:
            with urllib.request.urlopen(f"{address[0]}/api/{path}") as answer:
                return json.load(answer)

        studies = get("studies")["study_summaries"]
        assert {study["study_name"] for study in studies} == {"simulated/z0", "simulated/reference"}
        for study in studies:
            assert get(f"studies/{study['study_id']}?after=0")["trials"]
            with urllib.request.urlopen(f"{address[0]}/csv/{study['study_id']}") as table:
                assert b"COMPLETE" in table.read()
        assert get("meta")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
