"""What tests share: a real PostgreSQL, storages on both databases, the `dsopt` command, small training scripts."""

import functools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import pytest

from dsopt.launch.leftovers import remove_stale_build_locks
from dsopt.launch.program import path_with
from dsopt.store.studies import Store
from dsopt.study.cache_folder import cache_folder
from dsopt.study.secrets import OWN_ACCESS
from tests import postgres as own_postgres
from tests.fork_server import Command, loads_alike
from tests.revisions import execute_once

# as in the background of a shell, and under nohup; programs would inherit it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# as where the environment is activated: some tests do so, and torch compiles operators anew for minutes, which others
# wait for, whenever it finds another `ninja` than the last time
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

execute_once()

SCRIPTS = Path(__file__).parent / "scripts"
STUDIES = Path(__file__).parent.parent / "studies"
TINY_GPT = STUDIES / "tiny-gpt" / "train.py"
_started: list[subprocess.Popen[str] | Command] = []


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
    return make_database(postgres, f"test_{uuid.uuid4().hex[:12]}")


@pytest.fixture(params=["sqlite", "postgres"])
def storage_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, once for each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'storage' / 'dsopt.db'}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture(scope="session")
def put_tables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], None]:
    """Puts dsopt's tables into an empty database by its URL. It copies them: to make them takes half a second."""

    @functools.cache
    def made_file() -> Path:
        path = tmp_path_factory.mktemp("made") / "dsopt.db"
        Store.open(f"sqlite:///{path}", make=True).close()
        return path

    @functools.cache
    def made_database(server: str) -> str:
        Store.open(make_database(server, "made"), make=True).close()
        return "made"

    def put(url: str) -> None:
        if url.startswith("sqlite:///"):
            path = Path(url.removeprefix("sqlite:///"))
            path.parent.mkdir(mode=0o700)
            shutil.copy(made_file(), path)
        else:
            server, name = request.getfixturevalue("postgres"), urlsplit(url).path[1:]
            on_server(server, f"DROP DATABASE {name}", f"CREATE DATABASE {name} TEMPLATE {made_database(server)}")

    return put


def make_database(server: str, name: str) -> str:
    """Makes an empty PostgreSQL database. Returns its URL."""
    on_server(server, f"CREATE DATABASE {name}")
    return server.replace("/postgres?", f"/{name}?")


def on_server(url: str, *statements: str) -> None:
    """Says something to a PostgreSQL server."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def store(storage_url: str, put_tables: Callable[[str], None]) -> Iterator[Store]:
    """A database without a study, once for each kind."""
    put_tables(storage_url)
    opened = Store.open(storage_url)
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


def _rest_of(process: subprocess.Popen[str] | Command) -> str:
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

    def start(self, *args: str) -> subprocess.Popen[str] | Command:
        """Starts the command and does not wait for it."""
        if not loads_alike(self.environment):
            return start_process([sys.executable, "-m", "dsopt", *args], self.cwd, self.environment)
        _started.append(started := Command(args, self.cwd, self.environment))
        return started

    def __call__(self, *args: str, code: int = 0) -> str:
        """Runs the command to its end, checks its exit code, gives all it printed."""
        process = self.start(*args)
        output, _ = process.communicate(timeout=600)
        assert process.returncode == code, f"exit code {process.returncode}, output:\n{output}"
        return output

    def json(self, *args: str) -> dict:
        """What a command prints with `--json`."""
        return json.loads(self(*args, "--json"))


def make_cache(folder: Path) -> Path:
    """Makes a folder for caches that holds what DeepSpeed reads, if that is known: to find it out takes seconds."""
    (folder / "dsopt").mkdir(parents=True)
    for file in cache_folder().glob("deepspeed-*.json"):
        shutil.copy(file, folder / "dsopt")
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The empty working folder of runs."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def dsopt(tmp_path: Path, sqlite_url: str, put_tables: Callable[[str], None]) -> Dsopt:
    """The command in an empty working directory, on SQLite."""
    put_tables(sqlite_url)
    return Dsopt(tmp_path, sqlite_url)


@pytest.fixture
def dsopt_on(tmp_path: Path, storage_url: str, put_tables: Callable[[str], None]) -> Dsopt:
    """The command in an empty working directory, on each kind of database."""
    put_tables(storage_url)
    return Dsopt(tmp_path, storage_url)


@pytest.fixture
def dsopt_at_first(tmp_path: Path, sqlite_url: str) -> Dsopt:
    """The command where no study was ever created: there is no database yet."""
    return Dsopt(tmp_path, sqlite_url)
