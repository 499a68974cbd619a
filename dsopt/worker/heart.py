"""A worker's heart: says every few seconds that the worker lives, and ends its runs in time if it cannot."""

import threading
import time
from collections.abc import Callable
from typing import Final

from dsopt.store.heartbeat import HEARTBEAT_SECONDS, LEASE_SECONDS, MARGIN_SECONDS
from dsopt.store.revision import check
from dsopt.store.studies import Store
from dsopt.store.trouble import is_away
from dsopt.store.workers import Registration, beat, leave, register
from dsopt.study.node_rates import to_text
from dsopt.worker.node_speed import NodeSpeed

_LOOK_SECONDS: Final = 1.0


def _now() -> float:
    """Seconds on a clock that nobody sets, and that goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Heart:
    """Beats in a thread of its own, whatever the worker is waiting for.

    For `LEASE_SECONDS` after a beat, others believe that this worker lives. When the lease is nearly over and no beat
    has reached the database, `is_over` is true: the worker ends its runs itself, before others give them away.

    Attributes:
        me: this worker's row.
        problem: what the database says to its last beat, if it is there and refuses it.

    Args:
        store: the storage.
        wake: called when something has changed that the worker should look at.
        drain: set when somebody has asked this worker, in the database, to finish its runs and to leave.
        speed: has what was measured of the worker's node: each beat tells it.
    """

    def __init__(self, store: Store, wake: Callable[[], None], drain: threading.Event, speed: NodeSpeed) -> None:
        self._engine = store.engine
        self._wake = wake
        self._drain = drain
        self._speed = speed
        self._closing = threading.Event()
        self._is_over = threading.Event()
        self._is_buried = threading.Event()
        self._buries_from = _now()
        self._study_id: str | None = None
        self.problem: Exception | None = None
        self._register()
        self._thread = threading.Thread(target=self._work, name="dsopt-heart", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the lease is over, or so nearly that runs have to end now."""
        return self._is_over.is_set() or self._is_buried.is_set() or self._silent() > LEASE_SECONDS - MARGIN_SECONDS

    @property
    def is_buried(self) -> bool:
        """Whether others took this worker for dead."""
        return self._is_buried.is_set()

    @property
    def may_bury(self) -> bool:
        """Whether this worker may take others for dead. After silence of its own, they get a lease's time to return."""
        return _now() >= self._buries_from

    def begin(self, study_id: str) -> None:
        """Says what the worker works on from now on."""
        self._study_id = study_id
        self._beat()

    def bury(self) -> None:
        """Notes that others took this worker for dead."""
        self._is_buried.set()

    def renew(self) -> Registration:
        """Registers anew after others took this worker for dead; its runs have ended.

        Raises:
            DsoptError: another version of dsopt has upgraded the database meanwhile.
        """
        self._register()
        self._is_buried.clear()
        self._is_over.clear()
        return self.me

    def close(self) -> None:
        """Stops beating. Does not wait for a database that does not answer."""
        self._closing.set()
        self._thread.join(timeout=_LOOK_SECONDS)

    def leave(self) -> None:
        """Removes the worker from the database."""
        leave(self._engine, self.me)

    def _register(self) -> None:
        check(self._engine)
        began = _now()
        self.me = register(self._engine)
        self._beat_at = began

    def _silent(self) -> float:
        return _now() - self._beat_at

    def _work(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS if self._is_over.is_set() else HEARTBEAT_SECONDS):
            if self._is_buried.is_set():
                continue
            silent = self._silent()
            if silent > LEASE_SECONDS:
                self._buries_from = _now() + LEASE_SECONDS
            try:
                self._beat()
            except Exception as error:  # it goes on: another beat may reach the database
                self.problem = None if is_away(error) else error
            if self._silent() > LEASE_SECONDS - MARGIN_SECONDS:
                self._is_over.set()
                self._wake()

    def _beat(self) -> None:
        began, me = _now(), self.me
        is_draining = beat(self._engine, me, self._study_id, to_text(self._speed.rates))
        self.problem = None
        if is_draining is not None:
            self._beat_at = began
            self._is_over.clear()
            if is_draining:
                self._drain.set()
                self._wake()
        elif me is self.me:
            self._is_buried.set()
            self._wake()
