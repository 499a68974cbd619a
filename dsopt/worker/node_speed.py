"""How fast a worker's own node is: measured when it joins, and after a run that died there for no fault of its own."""

import contextlib
from collections.abc import Callable
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.launch.node_speed import Unmeasured, measure
from dsopt.launch.training import training_of
from dsopt.store.own_lease import NODE_SPEED, leave_node, take_node
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.transactions import DevicesTaken
from dsopt.store.workers import Registration
from dsopt.study.folders import results_folder
from dsopt.study.node_rates import NodeRates
from dsopt.worker.happenings import Happening, NodeMeasured

_MOST: Final = 3  # times that a worker measures: a node that fails on and on says nothing new


class NodeSpeed:
    """Measures the node of a worker, while nobody has any of its devices.

    Where runs use other nodes, too, or are dry, or where nobody could compare, nothing is measured: on a CPU beside an
    SQLite file there is one node, and slots have no speed of their own.

    Args:
        store: the storage.
        pool: the worker's devices.
        tell: told what was measured.

    Attributes:
        rates: what was measured last.
    """

    def __init__(self, store: Store, pool: DevicePool, tell: Callable[[Happening], None]) -> None:
        is_comparable = pool.kind == "gpu" or store.engine.dialect.name != "sqlite"
        self._left = _MOST if pool.is_measured and pool.placer is None and is_comparable else 0
        self._is_due = True
        self._engine = store.engine
        self._tell = tell
        self.rates: NodeRates | None = None

    def measure_again(self) -> None:
        """Measures once more when nothing runs here."""
        self._is_due = True

    def measure_if_due(
        self,
        study: StoredStudy,
        me: Registration,
        pool: DevicePool,
        ask: Callable[[Callable[[], Any]], Any],
        should_end: Callable[[], bool],
    ) -> None:
        """Measures, if that is due and nobody has devices of this node; else the next call may.

        Args:
            study: whose runs it is for: it is measured with their Python.
            me: the worker.
            pool: the devices that the worker has left.
            ask: how the database is asked.
            should_end: asked meanwhile whether the worker is to end its runs.

        Raises:
            Fenced: others took this worker for dead.
        """
        if not self._is_due or self._left <= 0 or study.spec.is_simulated:
            return
        run_dir = results_folder(study.spec) / f"{NODE_SPEED}{me.id}"
        try:
            training = training_of(study.spec)
            ask(lambda: take_node(self._engine, me, pool, run_dir))
        except DevicesTaken:
            return
        except DsoptError:
            self._left = 0  # nobody knows the Python of these runs
            return
        found, why = None, ""
        try:
            run_dir.mkdir()  # those who do not see the processes know by it that this node shares the folder
            found = measure(training, pool, run_dir, should_end=should_end)
        except (Unmeasured, OSError) as error:  # as when that Python is not there
            why = str(error)
        finally:
            with contextlib.suppress(OSError):
                run_dir.rmdir()
            ask(lambda: leave_node(self._engine, me))
        self._is_due, self._left = False, self._left - 1
        if found is not None and not should_end():
            self.rates = found
        if not should_end():
            self._tell(NodeMeasured(node=me.node, pool=pool, rates=found, why=why))
