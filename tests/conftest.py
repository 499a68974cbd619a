"""What tests share: a real PostgreSQL, storages on both databases, the `dsopt` command, small training scripts."""

import json
import os
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

from dsopt.launch.leftovers import remove_stale_build_locks
from dsopt.launch.program import path_with
from dsopt.store.studies import Store
from dsopt.study.secrets import OWN_ACCESS
from tests import postgres as own_postgres
from tests.command_server import PYTHONPATH, run_command

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; programs would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

SCRIPTS = Path(__file__).parent / "scripts"
STUDIES = Path(__file__).parent.parent / "studies"
TINY_GPT = STUDIES / "tiny-gpt" / "train.py"
_started: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nobodys_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whoever runs the tests may have keys, a storage and studies of their own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))
    monkeypatch.setenv("DSOPT_DEVICE_LOCKS", str(tmp_path_factory.getbasetemp() / f"locks-{uuid.uuid4().hex}"))
    monkeypatch.setenv("DSOPT_SPEED_CHECK", "off")  # seconds for each worker; tests/worker/test_node_speed.py has it on
    for name in (*OWN_ACCESS, "DSOPT_SIGNING_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def real_runs_find_what_they_need(request: pytest.FixtureRequest) -> None:
    """Before the first real run, DeepSpeed's operators are built: its own time limit is not for a compiler."""
    if request.node.get_closest_marker("real"):
        request.getfixturevalue("deepspeed_operators")


@pytest.fixture(scope="session")
def deepspeed_operators() -> None:
    """What DeepSpeed compiles at the first run on a machine without GPU, which takes a minute or two."""
    remove_stale_build_locks()  # one that was killed is waited for otherwise
    build = "from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder as Builder; Builder().load(verbose=False)"
    environment = {**os.environ, "PATH": path_with(os.environ, Path(sys.executable))}
    subprocess.run([sys.executable, "-c", build], check=True, stdout=subprocess.DEVNULL, env=environment, timeout=900)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real PostgreSQL server, started for the session."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))  # it warns without one
    server = own_postgres.started(tmp_path_factory.mktemp("pg"))
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """The URL of an empty PostgreSQL database."""
    import psycopg

    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=["sqlite", "postgres"])
def storage_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, once for each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'storage' / 'dsopt.db'}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def store(storage_url: str) -> Iterator[Store]:
    """An empty database, once for each kind."""
    opened = Store.open(storage_url, make=True)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an empty SQLite database."""
    return f"sqlite:///{tmp_path / 'storage' / 'dsopt.db'}"


def start_process(
    argv: Sequence[str], cwd: Path, environment: Mapping[str, str], output: IO[str] | int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Starts a process that ends with its test at the latest, whatever becomes of that (`ends_processes`)."""
    started = subprocess.Popen(argv, cwd=cwd, env=environment, stdout=output, stderr=subprocess.STDOUT, text=True)
    _started.append(started)
    return started


@pytest.fixture(autouse=True)
def ends_processes() -> Iterator[None]:
    """Ends what a test has left, closes its pipe and shows what it said: pytest prints that if the test failed."""
    earlier = len(_started)  # those of the fixtures of a module or of the session
    yield
    for process in _started[earlier:]:
        process.kill()
        if process.stdout is not None and not process.stdout.closed:
            print(f"{shlex.join(map(str, process.args))}, ended by its test, said:\n{_rest_of(process)}")
        process.wait()
    del _started[earlier:]


def _rest_of(process: subprocess.Popen[str]) -> str:
    """What a process that was killed has said and nobody has read."""
    assert process.stdout is not None
    with process.stdout:
        try:
            return process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired as error:
            return f"{error.output!r}, and others still hold its output"


class Dsopt:
    """The installed command, run as a person runs it: another process in a working directory."""

    def __init__(self, cwd: Path, storage: str) -> None:
        self.cwd = cwd
        self.environment = {**os.environ, "DSOPT_STORAGE": storage, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Starts the command and does not wait for it."""
        return start_process([sys.executable, "-m", "dsopt", *args], self.cwd, self.environment)

    def __call__(self, *args: str, code: int = 0) -> str:
        """Runs the command to its end, checks its exit code, gives all it printed."""
        if self.environment.get("PYTHONPATH") == PYTHONPATH:
            ended, output = run_command(args, self.cwd, self.environment, seconds=600)
        else:
            process = self.start(*args)
            output, _ = process.communicate(timeout=600)
            ended = process.returncode
        assert ended == code, f"exit code {ended}, output:\n{output}"
        return output

    def json(self, *args: str) -> dict:
        """What a command prints with `--json`."""
        return json.loads(self(*args, "--json"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The empty working folder of runs."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def dsopt(tmp_path: Path, sqlite_url: str) -> Dsopt:
    """The command in an empty working directory, on SQLite."""
    return Dsopt(tmp_path, sqlite_url)


@pytest.fixture
def dsopt_on(tmp_path: Path, storage_url: str) -> Dsopt:
    """The command in an empty working directory, on each kind of database."""
    return Dsopt(tmp_path, storage_url)
