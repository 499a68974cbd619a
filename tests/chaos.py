"""Three nodes on one machine, and what goes wrong on them, at random: for tests of whole studies."""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import sqlalchemy as sa

from tests.conftest import SCRIPTS, Dsopt
from tests.outages import Freezer, Server, on_node

NODES = ("one", "two", "three")
SLOTS = "cpu:6"
WORKERS = 8

# A launcher that fails on a node while there is a file `broken-NODE`.
LAUNCHER = """#!/bin/sh
[ -e {folder}/broken-$(hostname) ] && {{ echo the driver is broken >&2; exit 1; }}
exec {real} "$@"
"""

# The wall clock of a node is off by the seconds in the file `clock-NODE`, in every Python process of it.
CLOCK = """
import os, time
_path, _time, _time_ns = {folder!r} + "/clock-" + os.uname().nodename, time.time, time.time_ns
def _offset():
    try:
        return float(open(_path).read() or 0)
    except OSError:
        return 0.0
time.time = lambda: _time() + _offset()
time.time_ns = lambda: _time_ns() + int(1e9 * _offset())
"""


class Cluster:
    """Workers of three nodes, each node with a way to the database of its own, and a disk that all nodes share."""

    def __init__(self, dsopt: Dsopt, server: Server, folder: Path) -> None:
        self.dsopt = dsopt
        self.server = server
        self.workers: list[tuple[str, subprocess.Popen[str]]] = []
        self.commands: list[tuple[str, ...]] = [("simulated",)]
        self.ways: dict[str, tuple[Freezer, str]] = {}
        for node in NODES:
            (folder / node).mkdir(parents=True)
            self.ways[node] = server.another(folder / node)
        self.launcher = dsopt.cwd / "bin" / "deepspeed"
        self.launcher.parent.mkdir()
        self.launcher.write_text(LAUNCHER.format(folder=dsopt.cwd, real=SCRIPTS / "deepspeed"))
        self.launcher.chmod(0o755)
        (dsopt.cwd / "clock").mkdir()
        (dsopt.cwd / "clock" / "sitecustomize.py").write_text(CLOCK.format(folder=str(dsopt.cwd)))
        paths = [str(dsopt.cwd / "clock"), os.environ.get("PYTHONPATH", "")]
        dsopt.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))

    def start_worker(self, node: str, *studies: str) -> None:
        with (self.dsopt.cwd / f"workers-{node}.log").open("a") as log:
            args = ("worker", *studies, "--devices", SLOTS)
            worker = on_node(self.dsopt, node, *args, output=log, DSOPT_STORAGE=self.ways[node][1])
        self.workers.append((node, worker))

    def living(self) -> list[subprocess.Popen[str]]:
        return [worker for _, worker in self.workers if worker.poll() is None]

    def logs(self) -> str:
        return "".join(path.read_text() for path in self.dsopt.cwd.glob("workers-*.log"))

    def tails(self) -> list[str]:
        """The last that the workers of each node said."""
        return [path.read_text()[-3000:] for path in sorted(self.dsopt.cwd.glob("workers-*.log"))]

    def end(self) -> None:
        """Kills what is left of it."""
        for worker in self.living():
            worker.kill()
            worker.wait()

    def close(self) -> None:
        self.end()
        for freezer, _ in self.ways.values():
            freezer.close()


class Mischief:
    """Does something bad every second. What it freezes, fills or breaks is whole again some seconds later."""

    def __init__(self, cluster: Cluster, seed: int, disk: Path | None, again: Callable[[], None]) -> None:
        self._cluster = cluster
        self._folder = cluster.dsopt.cwd
        self._random = random.Random(seed)
        self._disk = disk
        self._again = again
        self._mending: list[tuple[float, Callable[[], object]]] = []
        self.done: list[str] = []
        self._actions: dict[str, tuple[float, Callable[[], object]]] = {
            "kill a worker": (4, lambda: self._worker().kill()),
            "freeze a worker": (3, self._freeze_a_worker),
            "freeze a worker for longer than a lease": (0.5, lambda: self._freeze_a_worker(70)),
            "kill a rank or a guard": (4, self._signal_a_child),
            "freeze a rank or a guard": (2, self._freeze_a_child),
            "restart the server": (1, self._restart),
            "freeze a node's connections": (2, self._freeze_connections),
            "cut a node's connections": (2, lambda: cluster.ways[self._node()][0].cut()),
            "step a node's clock": (2, self._step_a_clock),
            "break a node's launcher": (1.5, self._break_a_launcher),
            "delete and create a study again": (1, again),
        }
        if disk is not None:
            self._actions["fill the disk"] = (1, self._fill_the_disk)

    def work(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Does that for so long, or until all is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not is_over():
            self._start_workers()
            time.sleep(1)
            self._mend(time.monotonic())
            self.do_something()
        self._mend(float("inf"))

    def calm(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Lets the workers do what is left, and start again those that a broken node has ended."""
        deadline = time.monotonic() + seconds
        while not is_over():
            assert time.monotonic() < deadline, "it does not come to an end"
            self._start_workers()
            time.sleep(1)

    def do_something(self, name: str | None = None) -> None:
        names = list(self._actions)
        name = name or self._random.choices(names, [self._actions[each][0] for each in names])[0]
        self.done.append(name)
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            self._actions[name][1]()

    def _start_workers(self) -> None:
        for _ in range(WORKERS - len(self._cluster.living())):
            self._cluster.start_worker(self._node(), *self._random.choice(self._cluster.commands))

    def _mend(self, until: float) -> None:
        due = [mend for at, mend in self._mending if at <= until]
        self._mending = [(at, mend) for at, mend in self._mending if at > until]
        for mend in due:
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                mend()

    def _later(self, shortest: float, longest: float, mend: Callable[[], object]) -> None:
        self._mending.append((time.monotonic() + self._random.uniform(shortest, longest), mend))

    def _node(self) -> str:
        return self._random.choice(NODES)

    def _worker(self) -> psutil.Process:
        if not (living := self._cluster.living()):  # those that could not reach the database at first have ended
            raise psutil.NoSuchProcess(0)
        return psutil.Process(self._random.choice(living).pid)

    def _child(self) -> psutil.Process | None:
        """A rank, a launcher or a guard of any worker."""
        found = [child for w in self._cluster.living() for child in psutil.Process(w.pid).children(recursive=True)]
        return self._random.choice(found) if found else None

    def _freeze_a_worker(self, seconds: float = 5) -> None:
        worker = self._worker()
        worker.suspend()
        self._later(seconds * 0.1 if seconds < 60 else seconds, seconds, worker.resume)

    def _signal_a_child(self) -> None:
        child = self._child()
        if child is not None:
            child.send_signal(self._random.choice([signal.SIGKILL, signal.SIGTERM]))

    def _freeze_a_child(self) -> None:
        child = self._child()
        if child is not None:
            child.suspend()
            self._later(0.5, 5, child.resume)

    def _restart(self) -> None:
        self._cluster.server.stop()
        time.sleep(self._random.uniform(0, 2))
        self._cluster.server.start()

    def _freeze_connections(self) -> None:
        frozen = self._cluster.ways[self._node()][0].frozen
        frozen.set()
        self._later(0.5, 8, frozen.clear)

    def _step_a_clock(self) -> None:
        seconds = self._random.choice([-3600, -1, 1, 3600])
        (self._folder / f"clock-{self._node()}").write_text(str(seconds))

    def _break_a_launcher(self) -> None:
        broken = self._folder / f"broken-{self._node()}"
        broken.touch()
        self._later(1, 8, lambda: broken.unlink(missing_ok=True))

    def _fill_the_disk(self) -> None:
        assert self._disk is not None
        rest = self._disk / "rest"
        with contextlib.suppress(OSError), rest.open("wb") as file:
            while True:
                file.write(bytes(1 << 20))
        self._later(0.5, 4, lambda: rest.unlink(missing_ok=True))


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[bool]:
    """Puts a disk of that size at a folder; False, and the folder is an ordinary one: this user may not."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    try:
        yield made.returncode == 0
    finally:
        if made.returncode == 0:
            subprocess.run(["umount", "-l", folder], check=True)
            shutil.rmtree(folder, ignore_errors=True)


class DeviceWatch:
    """Looks again and again whether processes run on devices that their attempt does not hold."""

    def __init__(self, url: str, results: Path) -> None:
        self._engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        self._results = str(results)
        self._suspects: set[tuple[str, int]] = set()
        self.caught: set[tuple[str, int]] = set()
        self.looks = 0

    def look(self) -> None:
        """Whoever is seen twice without a lease, and has not ended between, is caught."""
        try:
            held = self._held()
            running = {(run_dir, pid) for pid, run_dir in run_dirs() if run_dir.startswith(self._results)}
            held |= self._held()
        except sa.exc.DBAPIError:
            return  # the server is being restarted
        without = {(run_dir, pid) for run_dir, pid in running if run_dir not in held}
        self.caught |= without & self._suspects
        self._suspects = without
        self.looks += 1

    def close(self) -> None:
        self._engine.dispose()

    def _held(self) -> set[str]:
        with self._engine.connect() as connection:
            return set(connection.execute(sa.text("SELECT run_dir FROM dsopt_leases")).scalars())


def run_dirs() -> Iterator[tuple[int, str]]:
    """The living processes of runs, each with its run directory."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, psutil.Error, ValueError):
            found = re.search(rb"(?:^|\0)DSOPT_RUN_DIR=([^\0]*)", (entry / "environ").read_bytes())
            if found and psutil.Process(int(entry.name)).status() != psutil.STATUS_ZOMBIE:
                yield int(entry.name), os.fsdecode(found[1])


def seeds(default: str) -> list[int]:
    """Those that `DSOPT_CHAOS_SEEDS` names, such as `1-20` or `3,7`."""
    found: list[int] = []
    for part in os.environ.get("DSOPT_CHAOS_SEEDS", default).split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
