"""A worker in a thread of this process: its events, how to stop it, and what it raised."""

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, TypeAlias

from typing_extensions import Self

from dsopt.api.events import Event, TaskProgressed
from dsopt.errors import DsoptError, Interrupted
from dsopt.launch.devices import DevicePool, parse_devices
from dsopt.launch.placers import with_placer as with_placer
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.worker.desk import LEFT
from dsopt.worker.ending import Ending
from dsopt.worker.loop import Worker

FindStudies: TypeAlias = Callable[[], Sequence[StoredStudy]]
Devices: TypeAlias = str | DevicePool | None  # as a person writes them, as parsed, or None for all there are
SPEED_CHECK: Final = "DSOPT_SPEED_CHECK"  # `off`: workers measure no nodes
_MOST_UNREAD: Final = 10_000


class WorkerThread:
    """A worker that works on studies in a thread, one study after the other.

    Somebody may also ask it in the database to drain (`drain_workers`).

    As a context manager, it stops at the end of the block. Otherwise Python waits for it at exit, as for any thread. It
    installs no signal handlers.
    """

    def __init__(self, store: Store, find: FindStudies, pool: DevicePool, *, until_idle: bool) -> None:
        self._pool = pool
        self._unread: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._ending = Ending(until_idle=until_idle)
        self._was_stopped = False
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(store, find), name="dsopt-worker")
        self._thread.start()

    @property
    def devices(self) -> str:
        """The devices that the worker may use, in words."""
        return str(self._pool)

    @property
    def warnings(self) -> Sequence[str]:
        """Devices that the worker does not use although they are there, and why."""
        return [f"{why}; no run uses it. To use it all the same, name it in --devices." for why in self._pool.left_out]

    @property
    def was_stopped(self) -> bool:
        """Whether the worker ended because `stop` was called, with its studies unfinished."""
        return self._was_stopped

    def is_alive(self) -> bool:
        """Whether the worker still works."""
        return self._thread.is_alive()

    def events(self) -> Iterator[Event]:
        """The worker's events, until it ends. Each event goes to one reader, once.

        The worker keeps events that nobody reads, but drops `TaskProgressed`, which comes many times a second, while
        ten thousand are unread.
        """
        while (event := self._unread.get()) is not None:
            yield event
        self._unread.put(None)  # for another reader

    def stop(self) -> None:
        """Asks the worker to stop: it ends its current runs and gives them back within seconds. Does not wait."""
        self._ending.stop.set()

    def drain(self) -> None:
        """Asks the worker to begin no more runs, and to end when its current runs have ended. Does not wait."""
        self._ending.drain.set()

    def join(self) -> None:
        """Waits until the worker ends. Ctrl-C meanwhile asks it to stop, and is raised once it has.

        Raises:
            DsoptError: studies cannot continue before the user has fixed something; the others are finished.
            BaseException: whatever else the worker raised.
        """
        try:
            self._thread.join()
        except BaseException:
            self._end()
            raise
        if self._problem is not None:
            raise self._problem

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self.stop()
        self._thread.join()

    def _work(self, store: Store, find: FindStudies) -> None:
        try:
            Worker(store, self._pool, self._ending, self._keep).work(find)
        except Interrupted:
            self._was_stopped = True
        except BaseException as error:  # raised again in the thread that joins
            self._problem = error
        finally:
            self._unread.put(None)

    def _keep(self, event: Event) -> None:
        if not isinstance(event, TaskProgressed) or self._unread.qsize() < _MOST_UNREAD:
            self._unread.put(event)


def pool_of(devices: Devices) -> DevicePool:
    """The devices named by `0,1,4-7` (GPUs), `cpu:16` (slots), or None for all that nobody uses.

    Raises:
        DsoptError: the text has another form, or names a GPU that is not there or cannot be used; or all are in use.
    """
    if isinstance(devices, DevicePool):
        return devices
    return replace(parse_devices(devices), is_measured=measures_nodes())


def measures_nodes() -> bool:
    """Whether workers of this environment measure how fast their nodes are."""
    return os.environ.get(SPEED_CHECK) != "off"


def work_on(
    store: Store, studies: Sequence[StoredStudy], devices: Devices, *, until_idle: bool = False
) -> WorkerThread:
    """Starts a worker in a thread on the studies that are neither finished, stopped nor deleted.

    Raises:
        DsoptError: the devices do not exist.
    """
    pool = pool_of(devices)
    open_ones = [study for study in studies if store.state(study) not in LEFT]
    return WorkerThread(store, lambda: open_ones, pool, until_idle=until_idle)


def work_on_all(store: Store, devices: Devices, *, until_idle: bool = False) -> WorkerThread:
    """Starts a worker in a thread on all studies that are neither finished nor stopped, new ones included.

    Raises:
        DsoptError: the devices do not exist.
    """
    return WorkerThread(store, lambda: unfinished(store)[0], pool_of(devices), until_idle=until_idle)


def unfinished(store: Store) -> tuple[list[StoredStudy], list[str]]:
    """All studies that are neither finished nor stopped, oldest first, and a message for each that cannot be read."""
    found, problems = [], []
    for header in store.headers():
        if header.state not in LEFT:
            try:
                found.append(store.get(header.name))
            except DsoptError as error:
                problems.append(str(error))
    return found, problems
