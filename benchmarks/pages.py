"""What people wait for: the pages of `dsopt dashboard`, `dsopt study show` and `dsopt workers`, with 10,000 trials.

Makes 50 studies of 100 trials in SQLite, of which every other one is finished, and one of 5,000 that goes on. Claims
and outcomes are those of a worker; only the figures are made up. Then a real dashboard is asked as a browser asks it.

    python -m benchmarks.pages [FOLDER [OTHER]]

With a folder, what was made stays in it, and is used again. With another checkout of dsopt, its commands are measured
in turn with those of this one, and nothing else is.
"""

import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import optuna
import psutil

from benchmarks.scale import Worker, fill, spec_of
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store

STUDIES, TRIALS_EACH, TRIALS = 50, 100, 5000
ROUNDS = 10


def make(folder: Path, url: str) -> None:
    """Fills a new database, a study after the other; that of 5,000 trials comes last."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    store = Store.open(url, make=True)
    for number in range(STUDIES):
        is_ending = number % 2 == 1
        study, _ = store.create(spec_of(folder, 100, f"small-{number}", TRIALS_EACH if is_ending else 100_000))
        run(store, study, TRIALS_EACH, is_ending=is_ending)
    study, _ = store.create(spec_of(folder, 1000, "large"))
    run(store, study, TRIALS)
    store.close()


def run(store: Store, study: StoredStudy, trials: int, *, is_ending: bool = False) -> None:
    """Gives a study so many trials, and with `is_ending` its confirmation."""
    worker = Worker(str(store.engine.url), study.name)
    worker.work()  # the baseline
    fill(store, study, trials, like=store.runs(study)[0]["id"])
    worker.work()  # the search goes on
    while is_ending and worker.work() is not None:
        pass
    worker.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of the dashboard: seconds until its first byte, seconds of processor time of the server, bytes."""

    first_byte: float
    processor: float
    size: int


class Dashboard:
    """A running `dsopt dashboard`."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self._server = psutil.Process(process.pid)
        self._port = port

    def ask(self, path: str) -> Answer:
        """What an address answers."""
        used = self._used()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        began = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        first = time.perf_counter() - began
        size = len(answer.read())
        connection.close()
        assert answer.status == 200, (path, answer.status)
        return Answer(first_byte=first, processor=self._used() - used, size=size)

    def _used(self) -> float:
        return float(sum(self._server.cpu_times()[:2]))


@contextmanager
def dashboard(url: str) -> Iterator[Dashboard]:
    """A dashboard of a storage, in a process of its own."""
    command = [sys.executable, "-m", "dsopt", "dashboard", "--port", "0", "--storage", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield Dashboard(process, int(line.partition("127.0.0.1:")[2].partition("/")[0]))
        finally:
            process.terminate()


def page(served: Dashboard, url: str, what: str, path: str, study: str) -> None:
    """Asks a page again and again, and its changing part, with and without another run of a study in between."""
    cold = served.ask(path)
    warm = [served.ask(path) for _ in range(ROUNDS)]
    same = [served.ask(f"{path}?part=1") for _ in range(ROUNDS)]
    changed, worker = [], Worker(url, study)
    for _ in range(ROUNDS):
        assert worker.work() is not None
        changed.append(served.ask(f"{path}?part=1"))
    worker.close()
    print(
        f"{what}: first byte {_ms(a.first_byte for a in warm)} warm, {_ms([cold.first_byte])} the first time; "
        f"{cold.size / 1000:.0f} kB; refresh {_ms(a.processor for a in same)} of the server's processor, "
        f"{_ms(a.processor for a in changed)} after another run, then {_ms(a.first_byte for a in changed)} to wait"
    )


def commands(url: str, checkouts: Sequence[Path]) -> None:
    """Runs commands again and again, those of several checkouts in turn, while a run of the large study goes on."""
    worker = Worker(url, "large")
    worker.begin()
    for words in (["--help"], ["--version"], ["study", "list"], ["study", "show", "large"], ["workers"]):
        taken: dict[Path, list[tuple[float, float]]] = {checkout: [] for checkout in checkouts}
        for _ in range(ROUNDS):
            for checkout in checkouts:
                taken[checkout].append(_command(url, checkout, words))
        for checkout, found in taken.items():
            walls, processors = zip(*found, strict=True)
            least = f"least {1000 * min(walls):.0f} and {1000 * min(processors):.0f} ms"
            where = f"{checkout}: " if len(checkouts) > 1 else ""
            print(f"{where}dsopt {' '.join(words)}: {_ms(walls)}, of the processor {_ms(processors)} ({least})")
    worker.close()


def _command(url: str, checkout: Path, words: Sequence[str]) -> tuple[float, float]:
    """The seconds that a command took, and those of a processor."""
    environment = {**os.environ, "DSOPT_STORAGE": url, "PYTHONPATH": str(checkout)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled
    before, began = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "dsopt", *words], cwd=checkout, env=environment,
                          stdout=subprocess.DEVNULL, check=False)  # fmt: skip
    assert done.returncode == 0, words
    wall, after = time.perf_counter() - began, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def _ms(seconds: Iterable[float]) -> str:
    return f"{1000 * statistics.median(seconds):.0f} ms"


def main() -> None:
    """Measures all of it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(scratch)
        folder.mkdir(exist_ok=True)
        url = f"sqlite:///{folder}/pages.db"
        os.environ["XDG_CACHE_HOME"] = scratch
        if not (folder / "pages.db").exists():
            make(folder, url)
        commands(url, [Path.cwd(), *(Path(other).resolve() for other in sys.argv[2:])])
        if sys.argv[2:]:
            return
        with dashboard(url) as served:
            page(served, url, f"overview of {STUDIES + 1} studies", "/", "small-0")
            page(served, url, f"a study of {TRIALS} trials", "/study/large", "large")


if __name__ == "__main__":
    main()
