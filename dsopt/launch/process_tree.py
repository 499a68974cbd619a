"""The processes of a training that was started in the foreground: who of them is to hear a signal, and their end."""

import contextlib
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

from dsopt.launch.processes import is_alive

_LOOK_SECONDS: Final = 0.1
_PATIENCE_SECONDS: Final = 60.0


class ProcessTree:
    """A process and all that it has started.

    DeepSpeed's launcher on one node heeds no signal and would leave its training behind; the process that it starts
    heeds SIGINT and SIGTERM. So a signal goes to the uppermost processes that heed it.

    Args:
        pid: the uppermost process.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._known: set[psutil.Process] = set()

    def look(self) -> None:
        """Notes who is there, to wait for them."""
        with contextlib.suppress(psutil.Error):
            self._known |= {self._root, *self._root.children(recursive=True)}

    def know(self, pids: Iterable[int]) -> None:
        """Notes processes of it whose parents have ended."""
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                self._known.add(psutil.Process(pid))

    def send(self, number: int) -> None:
        """Sends a signal to those that are to hear it; where nobody heeds it, they get SIGTERM.

        SIGINT goes to all, as from a terminal.
        """
        self.look()
        heeding = list(self._known) if number == signal.SIGINT else self._heeding(number)
        if not heeding:
            number = signal.SIGTERM
            heeding = self._heeding(number) or list(self._known)
        _tell(heeding, number)

    def _heeding(self, number: int) -> list[psutil.Process]:
        """The uppermost processes that have a handler for a signal; once the first has ended, all that have."""
        if is_alive(self._root):
            return _heeding(self._root, number)
        return [found for process in self._known for found in _heeding(process, number) if found == process]

    def wait(self) -> None:
        """Waits until all have ended that were there at a signal; asks those again that stay long after the first.

        What still stays then belongs to nobody who would hear it, such as a server that a script has left behind.
        """
        began, is_asked = time.monotonic(), False
        while left := [process for process in self._known if is_alive(process)]:
            seconds = time.monotonic() - began
            if seconds > 2 * _PATIENCE_SECONDS:
                return
            if seconds > _PATIENCE_SECONDS and not is_asked:
                is_asked = True
                _tell(left, signal.SIGTERM)
            time.sleep(_LOOK_SECONDS)


def _tell(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _heeding(process: psutil.Process, number: int) -> list[psutil.Process]:
    """The uppermost processes that have a handler for a signal."""
    try:
        if _has_handler(process.pid, number):
            return [process]
        children = process.children()
    except (psutil.Error, OSError):
        return []
    return [found for child in children for found in _heeding(child, number)]


def _has_handler(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
