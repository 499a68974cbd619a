"""The workers of a storage, wherever they run, and what each does."""

import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dsopt.api.storage import looked_at, opened
from dsopt.errors import DsoptError
from dsopt.store import queries, who_works
from dsopt.store.heartbeat import SILENT_SECONDS as SILENT_SECONDS
from dsopt.store.studies import NoStudiesError, Store
from dsopt.store.workers import ask_to_drain
from dsopt.study.node_rates import NodeRates, rates_in


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInHand:
    """A run that a worker has started and not ended.

    Attributes:
        study: the study's name.
        stage: `z0` … `z3` in the search, `reference` for the baseline and the confirmation.
        candidate: name of what runs.
        label: what people read for it, without the round.
        round: 0 in the search, 1, 2 … in the confirmation.
        running_seconds: for how long.
    """

    study: str
    stage: str
    candidate: str
    label: str
    round: int
    running_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker that has not left.

    Attributes:
        id: no other worker ever has it.
        node: the name of its machine or container.
        pid: its process there.
        silent_seconds: age of its last heartbeat, by the database's clock.
        is_draining: whether it was asked to finish its runs and to leave.
        rates: how fast the devices of its nodes were measured to be, by node; none: they were not.
        runs: what it runs now; empty if it waits.
    """

    id: str
    node: str
    pid: int
    silent_seconds: float
    is_draining: bool
    rates: Mapping[str, NodeRates]
    runs: tuple[RunInHand, ...]

    @property
    def is_silent(self) -> bool:
        """Whether it has missed three heartbeats: it is dead, stopped, or cut off from the database."""
        return self.silent_seconds > SILENT_SECONDS

    def to_json(self) -> dict[str, Any]:
        """The worker as data."""
        return {**asdict(self), "is_silent": self.is_silent}


def list_workers(*, storage: str | None = None) -> list[WorkerInfo]:
    """All workers of a storage that have not left, by node. It creates no database.

    Args:
        storage: URL of the database; by default as for `load_study`.

    Raises:
        DsoptError: the database cannot be used.
    """
    try:
        with looked_at(storage) as store:
            return _workers_of(store)
    except NoStudiesError:
        return []


def _workers_of(store: Store) -> list[WorkerInfo]:
    with store.engine.connect() as connection:
        rows = queries.other_workers(connection, None)
        running = who_works.running_attempts(connection)
    kept = [key for key in RunInHand.__dataclass_fields__ if key != "label"]
    by_study: dict[str, set[str]] = {}
    for run in running:
        by_study.setdefault(run["study"], set()).add(run["candidate"])
    labels = {study: _labels(store, study, names) for study, names in by_study.items()}
    return [
        WorkerInfo(
            id=row["id"],
            node=row["node"],
            pid=row["pid"],
            silent_seconds=max(0.0, row["silent_seconds"]),
            is_draining=row["draining"],
            rates=rates_in(row["rates"]),
            runs=tuple(
                RunInHand(
                    **{key: run[key] for key in kept},
                    label=labels[run["study"]].get(run["candidate"], run["candidate"]),
                )
                for run in running
                if run["worker_id"] == row["id"]
            ),
        )
        for row in rows
    ]


def _labels(store: Store, study: str, names: Collection[str]) -> dict[str, str]:
    """What people read for these configurations of a study, by name; none if it was deleted."""
    from dsopt.report.named import labels  # who lists workers that wait needs neither
    from dsopt.worker.history import observations_of

    try:
        return labels(observations_of(store, store.read(study), names))
    except DsoptError:
        return {}


def drain_workers(nodes: Collection[str] = ("*",), *, storage: str | None = None) -> list[WorkerInfo]:
    """Asks workers to begin no more runs, and to leave when their current ones have ended. Does not wait.

    A worker reads it before each run.

    Args:
        nodes: names of nodes, or patterns such as `gpu*`.
        storage: URL of the database; by default as for `load_study`.

    Returns:
        The workers that were asked, by node. Silent ones are among them: they leave if they come back.

    Raises:
        DsoptError: a name is empty, or the database cannot be used.
    """
    if "" in nodes:
        raise DsoptError("nodes: an empty name is that of no node. Give names, or patterns such as 'gpu*' or '*'.")
    try:
        with opened(storage) as store:
            asked = [
                worker for worker in _workers_of(store) if any(fnmatch.fnmatchcase(worker.node, node) for node in nodes)
            ]
            if asked:
                ask_to_drain(store.engine, [worker.id for worker in asked])
            return asked
    except NoStudiesError:
        return []
