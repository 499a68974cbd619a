"""The commands of compose.yaml, run with its variables and files: temporary folders stand for volumes and secrets."""

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Dsopt
from tests.docker.files import COMPOSE, DOCKER, ROOT, command_of
from tests.postgres import program

pytestmark = pytest.mark.slow

STUDY = "llama-3-8b"


class Layout:
    """What compose.yaml makes: a database with its roles, the secrets, and each service's environment."""

    def __init__(self, folder: Path, server: str) -> None:
        self.secrets = folder / "secrets"
        self.work = folder / "work"
        subprocess.run([DOCKER / "make-secrets", self.secrets], check=True)
        shutil.copytree(
            ROOT / "studies", self.work / "studies", ignore=shutil.ignore_patterns("autotuning_*", ".dsopt")
        )
        self.socket = urllib.parse.parse_qs(urllib.parse.urlsplit(server).query)["host"][0]
        for path in self.secrets.glob("*_url"):  # this server listens in a folder
            url = path.read_text().strip().replace("@postgres:5432/dsopt", f"@/dsopt?host={self.socket}")
            path.write_text(f"{url}\n")
        roles = (DOCKER / "postgres" / "roles.sql").read_text().replace("/run/secrets", str(self.secrets))
        subprocess.run(
            [program("psql"), "--set=ON_ERROR_STOP=1", "--no-psqlrc", server], input=roles, text=True, check=True
        )

    def service(self, name: str) -> Dsopt:
        """The entry point in the service's environment."""
        made = Dsopt(self.work, "")
        del made.environment["DSOPT_STORAGE"]
        for key, value in COMPOSE["services"][name]["environment"].items():
            path = Path(value.replace("/run/secrets", str(self.secrets)))
            assert path.name in COMPOSE["services"][name]["secrets"]
            made.environment[key] = str(path)
        return made


@pytest.fixture
def layout(tmp_path: Path, postgres: str) -> Iterator[Layout]:
    yield Layout(tmp_path, postgres)
    with psycopg.connect(postgres, autocommit=True) as connection:
        for statement in ("DATABASE dsopt", "ROLE dsopt_reader", "ROLE dsopt_writer"):
            connection.execute(f"DROP {statement}")


def test_roles_without_passwords_are_not_made(tmp_path: Path, postgres: str) -> None:
    """`cat` said that there was no such file, and a role without a password was made."""
    roles = (DOCKER / "postgres" / "roles.sql").read_text().replace("/run/secrets", str(tmp_path))
    made = subprocess.run(
        [program("psql"), "--no-psqlrc", postgres], input=roles, capture_output=True, text=True, check=False
    )
    assert made.returncode and "Put the two passwords into" in made.stderr, made.stderr
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT 1 FROM pg_roles WHERE rolname LIKE 'dsopt_writer'").fetchall() == []


def test_a_study_is_tuned_and_watched_as_compose_does_it(layout: Layout) -> None:
    check = COMPOSE["services"]["postgres"]["healthcheck"]["test"]
    ready = [word.replace("--host=127.0.0.1", f"--host={layout.socket}") for word in check[1:]]
    subprocess.run([program(ready[0]), *ready[1:]], check=True)
    assert "created; revision" in layout.service("schema")(*command_of("schema"))
    worker = layout.service("worker")
    assert "There is no study to work on" in worker(*command_of("worker"))
    worker("study", "create", "studies/llama-8b/dry-run.yaml")
    assert "is finished" in worker(*command_of("worker", DSOPT_WORKER_ARGS=f"--devices cpu:2 {STUDY}"))
    assert "times the baseline" in worker("study", "best", STUDY)
    _check_dashboard(layout)


def _check_dashboard(layout: Layout) -> None:
    served = layout.service("dashboard").start(*[w if w != "8080" else "0" for w in command_of("dashboard")])
    assert served.stdout is not None
    try:
        line = served.stdout.readline()
        port = re.search(r"on http://\S+:(\d+)/ ", line)
        assert port is not None, line + served.stdout.read()
        probe = COMPOSE["services"]["dashboard"]["healthcheck"]["test"]
        assert probe[:2] == ["CMD", "python3"]
        subprocess.run([sys.executable, *(word.replace(":8080/", f":{port[1]}/") for word in probe[2:])], check=True)
        token = (layout.secrets / "dashboard_token").read_text().strip()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        address = f"http://127.0.0.1:{port[1]}/api/studies?token={token}"
        with opener.open(address) as answer:
            assert f"{STUDY}/z1" in answer.read().decode()
    finally:
        served.send_signal(signal.SIGTERM)
        served.communicate(timeout=60)


def test_secrets_stay_as_they_are_and_within_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    made = []
    for _ in range(2):
        subprocess.run([DOCKER / "make-secrets", folder], check=True, env={"PATH": os.environ["PATH"]})
        made.append({path.name: path.read_text() for path in folder.iterdir()})
    assert made[0] == made[1]
    assert set(made[0]) == {Path(entry["file"]).name for entry in COMPOSE["secrets"].values()}
    assert len(set(made[0].values())) == len(made[0])
    assert folder.stat().st_mode & 0o077 == 0
    assert made[0]["writer_password"].strip() in made[0]["writer_url"]
