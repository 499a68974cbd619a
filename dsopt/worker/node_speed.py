"""How fast a worker's nodes are: measured when it joins, and after a run that died there for no fault of its own."""

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool, is_this_node
from dsopt.launch.far_speed import measure_far
from dsopt.launch.node_speed import Unmeasured, measure
from dsopt.launch.placement import Placement
from dsopt.launch.placers.placer import ChoosingPlacer, LeasingPlacer
from dsopt.launch.training import Training, training_of
from dsopt.store.leases import Lease, Request
from dsopt.store.own_lease import NODE_SPEED, leave_nodes, take_nodes
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.transactions import DevicesTaken
from dsopt.store.workers import Registration
from dsopt.study.folders import results_folder
from dsopt.study.node_rates import NodeRates
from dsopt.study.wanted import Wanted
from dsopt.worker.happenings import Happening, NodeMeasured

_MOST: Final = 3  # times that a worker measures: a node that fails on and on says nothing new
_GRANT_SECONDS: Final = 120.0  # an engine starts a Python on each node
_LOOK_SECONDS: Final = 1.0


class NodeSpeed:
    """Measures the nodes of a worker, while nobody has any of their devices.

    Where runs are dry, or nobody could compare, nothing is measured: on a CPU beside an SQLite file there is one node,
    and slots have no speed of their own. Nor is it where an engine that chooses nodes has not all of them free.

    Args:
        store: the storage.
        pool: the worker's devices.
        tell: told what was measured.

    Attributes:
        rates: what was measured last, by node.
        slow: GPUs that were slower than the others of their node then, by node.
    """

    def __init__(self, store: Store, pool: DevicePool, tell: Callable[[Happening], None]) -> None:
        is_comparable = pool.kind == "gpu" or pool.placer is not None or store.engine.dialect.name != "sqlite"
        self._left = _MOST if pool.is_measured and is_comparable else 0
        self._is_due = True
        self._engine = store.engine
        self._tell = tell
        self.rates: dict[str, NodeRates] = {}
        self.slow: dict[str, list[int]] = {}

    def of(self, nodes: Collection[str]) -> NodeRates | None:
        """What was measured of the only one of these nodes; None of several, or if nothing was."""
        return self.rates.get(next(iter(nodes))) if len(nodes) == 1 else None

    def measure_again(self) -> None:
        """Measures once more when nothing runs here."""
        self._is_due = True

    def measure_if_due(
        self,
        study: StoredStudy,
        me: Registration,
        pool: DevicePool,
        lost: Sequence[str],
        ask: Callable[[Callable[[], Any]], Any],
        should_end: Callable[[], bool],
    ) -> None:
        """Measures, if that is due and nobody has devices of these nodes; else the next call may.

        Args:
            study: whose runs it is for: it is measured with their Python.
            me: the worker.
            pool: the devices that the worker has left.
            lost: nodes that runs have been lost on, which are left out.
            ask: how the database is asked.
            should_end: asked meanwhile whether the worker is to end its runs.

        Raises:
            Fenced: others took this worker for dead.
        """
        if not self._is_due or self._left <= 0 or study.spec.is_simulated:
            return
        run_dir = results_folder(study.spec) / f"{NODE_SPEED}{me.id}"
        with contextlib.ExitStack() as held:
            try:
                training, request = training_of(study.spec), _request_of(pool, lost)
                if isinstance(pool.placer, ChoosingPlacer):
                    granted = held.enter_context(_granted(pool.placer, request, lost, should_end))
                    request = replace(request, granted=granted)
                lease = ask(lambda: take_nodes(self._engine, me, request, run_dir))
            except _NotNow:
                self._is_due = False  # to ask on and on would keep the worker's runs from their place in the queue
                return
            except DevicesTaken:
                return
            except DsoptError:
                self._left = 0  # nobody knows the Python of these runs, or the nodes
                return
            one = _Measuring(request=request, training=training, run_dir=run_dir, lease=lease, node=me.node)
            try:
                found = one.found(should_end)
            finally:
                shutil.rmtree(run_dir, ignore_errors=True)
                ask(lambda: leave_nodes(self._engine, me))
        self._is_due, self._left = False, self._left - 1
        if not should_end():
            self._take(found, one)

    def _take(self, found: Mapping[str, NodeRates | str], measuring: "_Measuring") -> None:
        for node, rates in found.items():
            pool = measuring.pool_on(node)
            if isinstance(rates, str):
                self._tell(NodeMeasured(node=node, pool=pool, rates=None, why=rates))
            else:
                self.rates[node] = rates
                self.slow[node] = slow_gpus(pool, rates)
                self._tell(NodeMeasured(node=node, pool=pool, rates=rates))


def slow_gpus(pool: DevicePool, rates: NodeRates) -> list[int]:
    """Which of a node's GPUs are slower than the others. CPU slots are no devices of their own."""
    return [pool.indices[place] for place in rates.slow_devices()] if pool.kind == "gpu" else []


class _NotNow(Exception):  # noqa: N818 - no error: it is measured another time
    """An engine does not grant all of its nodes."""


@contextlib.contextmanager
def _granted(
    placer: ChoosingPlacer, request: Request, lost: Sequence[str], should_end: Callable[[], bool]
) -> Iterator[Placement]:
    """All nodes of an engine but the lost ones. It gets them back at the end.

    Raises:
        _NotNow: it has not all of them free, or the worker is to end.
        DsoptError: there will be none.
    """
    assert request.wanted is not None
    woken, deadline = threading.Event(), time.monotonic() + _GRANT_SECONDS
    while (placement := placer.acquire(request.wanted, lost, woken.set)) is None:
        if placer.standing == "queued" or should_end() or time.monotonic() > deadline:
            raise _NotNow  # the request of the next run takes the place of this one
        woken.wait(_LOOK_SECONDS)
        woken.clear()
    try:
        yield placement
    finally:
        placer.release(placement)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measuring:
    """One measuring of leased devices.

    Attributes:
        request: for the devices.
        training: what runs of the study start with.
        run_dir: what the processes are known by.
        lease: the devices.
        node: the worker's own.
    """

    request: Request
    training: Training
    run_dir: Path
    lease: Lease
    node: str

    def found(self, should_end: Callable[[], bool]) -> dict[str, NodeRates | str]:
        """What the devices of each node do, or why they have not shown it."""
        try:
            self.run_dir.mkdir()  # those who do not see the processes know by it that this node shares the folder
            return self._found(should_end)
        except OSError as error:  # as when that Python is not there
            return {self.node: str(error)}

    def _found(self, should_end: Callable[[], bool]) -> dict[str, NodeRates | str]:
        pool, placement = self.request.pool, self.request.granted
        if isinstance(pool.placer, LeasingPlacer):
            placement = pool.placer.place(self.lease.hosts)
        if placement is not None:
            return measure_far(placement, self.training, pool.kind, self.run_dir, should_end=should_end)
        try:
            return {self.node: measure(self.training, pool, self.run_dir, should_end=should_end)}
        except Unmeasured as error:
            return {self.node: str(error)}

    def pool_on(self, node: str) -> DevicePool:
        """The devices that were measured on a node."""
        pool = self.request.pool
        return replace(pool, placer=None, indices=self.lease.hosts.get(node, pool.indices))


def _request_of(pool: DevicePool, lost: Sequence[str]) -> Request:
    """All devices of a worker on its node, or on those of its placer: of an engine that chooses, as many of each node.

    Raises:
        DevicesTaken: all nodes are lost.
        DsoptError: the placer does not know its nodes.
    """
    placer = pool.placer
    if placer is None:
        return Request(pool=pool, count=len(pool.indices))
    hosts = {node: indices for node, indices in placer.hosts().items() if node not in lost}
    if not hosts:
        raise DevicesTaken
    if placer.has_gpus is not None:
        pool = replace(pool, kind="gpu" if placer.has_gpus else "cpu")
    if isinstance(placer, ChoosingPlacer):
        least = min(map(len, hosts.values()))
        return Request(pool=pool, count=0, wanted=Wanted(hosts=hosts, nodes=len(hosts), devices=least))
    own = None if placer.is_granting else next(filter(is_this_node, hosts), None)
    if own is not None:
        hosts[own] = tuple(index for index in hosts[own] if index in pool.indices)
    return Request(pool=pool, count=0, wanted=Wanted(hosts=hosts, nodes=len(hosts)), own=own, scope=placer.scope)
