"""The overview: every study with its progress and best, what runs now, who works, what failed last."""

import threading
import urllib.parse
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dsopt.errors import DsoptError
from dsopt.report.goal import superlative
from dsopt.report.readable import readable_name
from dsopt.report.rows import Row, best_row
from dsopt.report.standing import OVER, standing_of
from dsopt.store import who_works
from dsopt.store.heartbeat import SILENT_SECONDS
from dsopt.store.queries import Row as Record
from dsopt.store.queries import other_workers
from dsopt.store.studies import Store
from dsopt.study.comparison import comparison_name
from dsopt.study.node_rates import rates_in
from dsopt.web.histories import Histories
from dsopt.worker.results import summary_of, table_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One study of the overview.

    Attributes:
        name, link, state: the study; `link` is relative to the overview.
        simulated: what a dry run simulates; None if runs are real.
        good, far: how good and how far it is, in words.
        best: its best so far; None for a comparison and while nothing was measured.
        factor, interval: of the confirmed result against the user's own configuration.
        so_far: the factor of the best so far, before there is a result.
        is_doubted: whether a warning says why not to believe its figures yet.
        own_fails: whether there is a result and no factor, because the user's own configuration does not run.
        batch: what to know of the global batch of the result, if it is not the user's; else empty.
        batch_times: how many times as large as the user's it is; 1 if it is the same.
        unit: of its metric.
        stopped: why it stopped, if it did; else empty.
        failed: how many runs failed, and what the last one said.
        message: why the study cannot be read; empty otherwise.
    """

    name: str
    link: str
    state: str
    simulated: str | None = None
    good: str = ""
    far: str = ""
    best: Row | None = None
    factor: float | None = None
    interval: tuple[float, float] | None = None
    so_far: float | None = None
    is_doubted: bool = False
    own_fails: bool = False
    batch: str = ""
    batch_times: float = 1.0
    unit: str = ""
    stopped: str = ""
    failed: int = 0
    last_failure: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A run that goes on; `is_silent`: as far as anybody knows, for its worker is not heard of."""

    study: str
    link: str
    label: str
    node: str
    seconds: float
    is_silent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """A worker that has not left: its node, its process, how long it has been silent, and how many runs it has.

    `speed` is what each of its devices was measured to do, in words; empty: they were not.
    """

    node: str
    pid: int
    silent_seconds: float
    runs: int
    devices: int
    speed: str

    @property
    def is_silent(self) -> bool:
        """Whether it has missed three heartbeats."""
        return self.silent_seconds > SILENT_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Everything on the overview. The newest study comes first."""

    storage: str
    studies: Sequence[Card]
    running: Sequence[Running]
    workers: Sequence[Working]

    def runs_of(self, study: str) -> int:
        """How many runs of a study go on, those of silent workers left out."""
        return sum(run.study == study and not run.is_silent for run in self.running)

    @property
    def needs_a_worker(self) -> bool:
        """Whether there is a study to go on with, or none at all."""
        return not self.studies or any(card.state not in OVER for card in self.studies)

    def standstill(self, card: Card) -> str:
        """That nothing goes on in a study that is not over, in words; else empty."""
        if card.state in OVER or self.runs_of(card.name):
            return ""
        is_silent = any(run.study == card.name for run in self.running)
        return "Its worker is silent." if is_silent else "No run is going on."


class Overview:
    """Reads the overview; a study that has not changed is not read again."""

    def __init__(self, store: Store, histories: Histories) -> None:
        self._store = store
        self._histories = histories
        self._cards: dict[str, tuple[tuple[int, int], Card]] = {}
        self._labels: dict[str, dict[str, str]] = {}  # by study and canonical name
        self._lock = threading.Lock()

    def read(self) -> Shown:
        """What to show now."""
        with self._store.engine.connect() as connection:
            studies = who_works.studies_now(connection)
            workers = other_workers(connection, None)
            running = who_works.running_attempts(connection)
            devices = who_works.devices_of_workers(connection)
        with self._lock:  # browsers that come at once let one of them read
            versions = {row["name"]: row["version"] for row in studies}
            cards = [self._card(row, versions.get(comparison_name(row["name"]), 0)) for row in studies]
            gone = self._cards.keys() - {row["id"] for row in studies}
            for study_id in gone:
                del self._cards[study_id]
            self._labels = {row["name"]: self._labels.get(row["name"], {}) for row in studies}
        heard = {row["id"] for row in workers if row["silent_seconds"] <= SILENT_SECONDS}
        return Shown(
            storage=self._store.shown_url,
            studies=cards[::-1],
            running=[self._running(row, heard) for row in running],
            workers=[
                Working(
                    node=row["node"],
                    pid=row["pid"],
                    silent_seconds=max(0.0, row["silent_seconds"]),
                    runs=sum(run["worker_id"] == row["id"] for run in running),
                    devices=devices.get(row["id"], 0),
                    speed=_speed(row),
                )
                for row in workers
            ],
        )

    def _card(self, row: Record, of_comparison: int) -> Card:
        known, version = self._cards.get(row["id"]), (row["version"], of_comparison)
        if known is None or known[0] != version:
            known = self._cards[row["id"]] = (version, self._made(row["name"], row["state"]))
        return known[1]

    def _running(self, row: Record, heard: Collection[str]) -> Running:
        name = row["candidate"]
        label = self._labels.get(row["study"], {}).get(name) or readable_name(name, None)
        return Running(
            study=row["study"],
            link=link_of(row["study"]),
            label=f"{label} · round {row['round']}" if row["round"] else label,
            node=row["node"] or "?",
            seconds=max(0.0, row["running_seconds"]),
            is_silent=row["worker_id"] not in heard,
        )

    def _made(self, name: str, state: str) -> Card:
        try:
            study, history = self._histories.read(self._store.read(name))
            if study.spec.compare:
                table = table_of(self._store, study, history)
                fastest = f"; {table.fastest} is the {superlative(table.metric)}" if table.fastest is not None else ""
                ratio = next((row.factor for row in table.rows if row.name == table.fastest), None)
                if fastest and ratio is not None and table.fastest != table.reference:
                    fastest += f", {ratio.factor:.2f} times {table.reference}"
                so_far = " so far" if fastest and state != "finished" else ""
                return Card(
                    name=name,
                    link=link_of(name),
                    state=state,
                    simulated=table.simulated,
                    good=f"a comparison{fastest}{so_far}",
                    far=f"{len(table.rows)} rows",
                )
            summary = summary_of(self._store, study, history)
        except DsoptError as error:
            return Card(name=name, link=link_of(name), state=state, message=str(error))
        standing, found = standing_of(study.spec, history, summary, ()), summary.comparison
        self._labels[name] = {row.name: row.label for row in standing.rows if not row.is_own}
        failed = sorted((o for o in history.everything if o.state == "failed"), key=lambda o: o.order)
        return Card(
            name=name,
            link=link_of(name),
            state=standing.state,
            simulated=standing.simulated,
            good=standing.good,
            far=standing.far,
            best=best_row(standing.rows) if found or standing.state != "finished" else None,
            factor=found.speedup if found and summary.alternatives else None,
            so_far=standing.factor if found is None else None,
            interval=found.interval if found else None,
            is_doubted=any(line.startswith("WARNING: ") for line in (*standing.doubts, *summary.unlike_runs)),
            own_fails=found is not None and found.speedup is None,
            batch=summary.batch_advice.short() if summary.batch_advice else standing.batch,
            batch_times=summary.batch_advice.times if summary.batch_advice else 1.0,
            unit=standing.unit,
            stopped=next((line for line in standing.now if line.startswith("Stopped")), ""),
            failed=len(failed),
            last_failure=failed[-1].message if failed else "",
        )


def _speed(worker: Record) -> str:
    """What a device of a worker's node does, or of each of its nodes."""
    found = rates_in(worker["rates"])
    if list(found) == [worker["node"]]:
        return str(found[worker["node"]])
    return "; ".join(f"{node}: {rates}" for node, rates in found.items())


def link_of(name: str) -> str:
    """The address of a study's page, relative to the overview."""
    return f"study/{urllib.parse.quote(name, safe='')}"
