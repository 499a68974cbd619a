"""Signals to a worker: SIGINT, SIGTERM and SIGHUP stop it, SIGUSR1 drains it."""

import atexit
import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsopt import WorkerThread


class _Drains:
    """Hears SIGUSR1 while there is no worker that it could drain."""

    def __init__(self) -> None:
        self.is_asked = False

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        self.is_asked = True


def hear_drains() -> None:
    """From now on, SIGUSR1 does not end this process; unheard, it would.

    A worker that starts later is drained at once. One that has ended has nothing to drain, and tells of its end.
    """
    signal.signal(signal.SIGUSR1, _Drains())  # not SIG_IGN, which programs that this process starts would inherit
    atexit.register(signal.signal, signal.SIGUSR1, signal.SIG_IGN)  # Python takes its handlers back before it ends


@contextlib.contextmanager
def heeding_signals(start: "Callable[[], WorkerThread]") -> "Iterator[WorkerThread]":
    """Starts a worker, stops it when this process gets SIGINT, SIGTERM or SIGHUP, and drains it at SIGUSR1.

    A second Ctrl-C raises KeyboardInterrupt. A SIGHUP that is ignored, as under `nohup`, stays so.
    """
    running: list[WorkerThread] = []
    heard: list[Callable[[WorkerThread], None]] = []  # before the worker had started

    def tell(what: "Callable[[WorkerThread], None]") -> None:
        heard.append(what)
        for worker in running:
            what(worker)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        tell(lambda worker: worker.stop())
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def drain(_signal: int, _frame: FrameType | None) -> None:
        tell(lambda worker: worker.drain())

    handlers = {signal.SIGINT: stop, signal.SIGTERM: stop, signal.SIGUSR1: drain}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        handlers[signal.SIGHUP] = stop
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    earlier = before[signal.SIGUSR1]
    if isinstance(earlier, _Drains) and earlier.is_asked:
        heard.append(lambda worker: worker.drain())
    try:
        worker = start()
        running.append(worker)
        for what in heard:
            what(worker)
        yield worker
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
