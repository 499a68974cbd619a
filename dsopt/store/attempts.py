"""What a worker does in the database around a run: registers, claims, begins and ends attempts, cleans up the dead."""

import json
import os
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsopt.experiment.outcome import Measured, Outcome, Slow, figures_of
from dsopt.launch.devices import DevicePool, free_ports
from dsopt.launch.processes import host_identity, kill_all, start_time
from dsopt.store import queries
from dsopt.store.studies import Store, StoredStudy
from dsopt.study.part import Part
from dsopt.study.trial_attributes import Phase

HEARTBEAT_SECONDS = 5.0
_SILENT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One claimed candidate to be run: a trial of a part of a study.

    Attributes:
        part: the part.
        trial: number of its trial in the part's Optuna study.
        name: the candidate's name, or `baseline` or `profile`.
        round: 0 in the search, 1, 2 … in the confirmation.
        phase: in the search, whether it was chosen to find the range of micro-batch sizes or to explore within it.
    """

    part: Part
    trial: int
    name: str
    round: int
    phase: Phase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A running attempt with what it holds."""

    id: int
    devices: DevicePool
    port: int


class WorkerRecord:
    """This process's row among the workers, and what it writes as that worker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.node = socket.gethostname()
        started = start_time(os.getpid())
        assert started is not None
        with store.engine.begin() as connection:
            self.id = queries.insert_worker(
                connection, node=self.node, host=host_identity(), pid=os.getpid(), process_started=started
            )

    def beat(self) -> bool:
        """Records that this worker is alive. False: others took it and its runs for dead."""
        with self._store.engine.begin() as connection:
            return queries.beat(connection, self.id)

    def leave(self) -> None:
        """Removes the row: this worker runs nothing any more."""
        with self._store.engine.begin() as connection:
            queries.delete_worker(connection, self.id)

    def claim(self, study: StoredStudy, task: Task) -> bool:
        """Claims a candidate. False: somebody else has it."""
        with self._store.engine.begin() as connection:
            return queries.insert_claim(
                connection,
                study_id=study.id,
                stage=task.part,
                candidate=task.name,
                round_=task.round,
                trial=task.trial,
                worker_id=self.id,
            )

    def give_back(self, study: StoredStudy, task: Task) -> None:
        """Gives a claim back."""
        with self._store.engine.begin() as connection:
            queries.release_claim(connection, study_id=study.id, stage=task.part, trial=task.trial)

    def adopt(self, study: StoredStudy, running: Collection[tuple[Part, int]]) -> Task | None:
        """Adopts one of the running trials (part and number) whose worker died, if there is one."""
        with self._store.engine.begin() as connection:
            for row in queries.claims_of(connection, study.id):
                if (row["stage"], row["trial"]) in running and queries.adopt_claim(connection, row["id"], self.id):
                    return Task(part=Part(row["stage"]), trial=row["trial"], name=row["candidate"], round=row["round"])
        return None

    def begin(self, study: StoredStudy, task: Task, run_dir: Path, pool: DevicePool, count: int) -> Attempt | None:
        """Begins an attempt with `count` devices of the pool and a port. None: not enough devices are free now."""
        with self._store.engine.begin() as connection:
            attempt_id = queries.insert_attempt(
                connection,
                study_id=study.id,
                stage=task.part,
                trial=task.trial,
                candidate=task.name,
                round_=task.round,
                worker_id=self.id,
                run_dir=str(run_dir),
            )

            def lease(device: str) -> bool:
                return queries.lease(connection, node=self.node, device=device, attempt_id=attempt_id)

            indices = _take(pool, count, lease)
            if len(indices) < count:
                connection.rollback()
                return None
            port = next(port for port in free_ports() if lease(f"port:{port}"))
        return Attempt(id=attempt_id, devices=DevicePool(kind=pool.kind, indices=indices), port=port)

    def finish(self, attempt: Attempt, outcome: Outcome, metric: str) -> bool:
        """Records an outcome. False: the attempt was recorded as lost meanwhile, so the outcome does not count."""
        reason = None if isinstance(outcome, Measured) else outcome.reason
        message = None if isinstance(outcome, Measured) else outcome.message
        with self._store.engine.begin() as connection:
            if not queries.finish_attempt(connection, attempt.id, state=outcome.state, reason=reason, message=message):
                return False
            if isinstance(outcome, Measured | Slow):
                queries.insert_measurement(connection, attempt.id, measurement_row(outcome, metric))
        return True


def failed_launches(store: Store, study: StoredStudy, task: Task) -> dict[str, int]:
    """How many attempts of a trial have failed, by reason."""
    with store.engine.connect() as connection:
        rows = queries.attempts_for(connection, study.id, task.part, task.trial)
    reasons = [row["reason"] for row in rows if row["state"] == "failed"]
    return {reason: reasons.count(reason) for reason in set(reasons)}


def last_attempt(store: Store, study: StoredStudy, task: Task) -> queries.Row | None:
    """The newest attempt of a trial, with its measurement's details."""
    with store.engine.connect() as connection:
        rows = queries.attempts_for(connection, study.id, task.part, task.trial)
    return rows[-1] if rows else None


def run_seconds(store: Store, study: StoredStudy, task: Task) -> float | None:
    """Wall clock of the newest attempt of a trial from launch to end; None if nothing was launched."""
    row = last_attempt(store, study, task)
    return row["finished_at"] - row["started_at"] if row and row["finished_at"] is not None else None


def bury_the_dead(store: Store, me: WorkerRecord) -> int:
    """Ends what dead workers left behind: their processes on this machine, their attempts, their leases.

    A worker of this machine is dead when its process is gone; one of another machine when it has been silent for a
    minute. Its claims remain without a worker, for `WorkerRecord.adopt`.

    Returns:
        How many workers were buried.
    """
    buried = 0
    with store.engine.begin() as connection:
        for worker in queries.other_workers(connection, me.id):
            here = worker["host"] == host_identity()
            gone = start_time(worker["pid"]) != worker["process_started"] if here else False
            if gone or worker["silent_seconds"] > _SILENT_SECONDS:
                if here:
                    for row in queries.running_attempts_of_worker(connection, worker["id"]):
                        kill_all(Path(row["run_dir"]))
                queries.delete_worker(connection, worker["id"])
                buried += 1
    with store.engine.begin() as connection:
        for row in queries.orphaned_attempts(connection):
            kill_all(Path(row["run_dir"]))
            queries.finish_attempt(
                connection, row["id"], state="failed", reason="lost", message="its worker died while it ran"
            )
    return buried


def measurement_row(outcome: Measured | Slow, metric: str) -> dict[str, Any]:
    """What the database stores of a measurement; the metric is the study's."""
    figures = figures_of(outcome)
    return {
        "metric": figures.metric(metric),
        "step_seconds": figures.measurement.step_seconds,
        "half_width_seconds": figures.measurement.half_width_seconds,
        "samples_per_second": figures.measurement.samples_per_second,
        "peak_memory_bytes": float(figures.peak_memory_bytes),
        "details": json.dumps(outcome.to_json()),
    }


def _take(pool: DevicePool, count: int, lease: Callable[[str], bool]) -> tuple[int, ...]:
    taken: list[int] = []
    for index, name in zip(pool.indices, pool.names(), strict=True):
        if len(taken) < count and lease(name):
            taken.append(index)
    return tuple(taken)


def claimed_trials(store: Store, study: StoredStudy) -> set[tuple[Part, int]]:
    """The trials that count: those whose candidate is claimed. Once its claim is given back, a trial does not count."""
    with store.engine.connect() as connection:
        return {(Part(row["stage"]), row["trial"]) for row in queries.claims_of(connection, study.id)}
