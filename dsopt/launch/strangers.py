"""Who else computes on the GPUs of a worker: programs that are no runs of dsopt, and came after the worker."""

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.launch.gpus import Gpu, User, installed_gpus, used_by

_LOOK_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 3.0  # without its persistence mode, a driver takes seconds to begin
SILENT_SECONDS: Final = 30.0
_MPS: Final = "(nvidia-cuda-mps"  # the beginning of a process's name, of which the kernel keeps 15 letters
STAYED_SECONDS: Final = 1.0  # the driver may still list a process that has just ended

DRIVER_SILENT: Final = (
    "WARNING: the driver of this node's GPUs does not answer ('nvidia-smi' should), so dsopt cannot see whether others "
    "use them."
)


class Strangers:
    """Sees them by the driver, for all lanes of a worker. GPUs that it was given though they were in use do not count.

    A thread of its own asks the driver, which may answer late, or never again after a fault of a GPU.

    Args:
        pool: the worker's devices.
        on_silence: called, once each time, when the driver does not answer: nobody is seen then.
    """

    def __init__(self, pool: DevicePool, on_silence: Callable[[], object] = lambda: None) -> None:
        self._watched = frozenset(pool.indices) - pool.shared if pool.kind == "gpu" else frozenset()
        self._on_silence = on_silence
        self._is_silent = False
        self._looked = threading.Condition()
        self._began_at: float | None = None  # the look that has not come back
        self._looked_at = -math.inf  # when the last one began that has
        self._since: Mapping[tuple[int, User], float] = {}  # by GPU and user: when a look saw it first

    def on(
        self,
        indices: Iterable[int],
        *,
        stayed: float = 0.0,
        age: float = _LOOK_SECONDS,
        patience: float = _PATIENCE_SECONDS,
    ) -> Mapping[int, Collection[User]]:
        """Who is on some GPUs, by index; one that nobody is on is not among them.

        Args:
            indices: the GPUs.
            stayed: for how many seconds at least they have been seen there.
            age: seconds that the last look may be old.
            patience: seconds to wait for a later one; then the last one counts.
        """
        if not self._watched:
            return {}
        self._look(time.monotonic() - age, patience)
        with self._looked:
            looked_at, seen = self._looked_at, {} if self._is_silent else self._since
        found: dict[int, list[User]] = {index: [] for index in indices}
        for (index, user), since in seen.items():
            if index in found and looked_at - since >= stayed:
                found[index].append(user)
        return {index: users for index, users in found.items() if users}

    def _look(self, since: float, patience: float) -> None:
        """Waits for a look that began since then, but not for a driver that has let others wait for so long."""
        until, is_news = time.monotonic() + patience, False
        with self._looked:
            while self._looked_at < since:
                now = time.monotonic()
                if self._began_at is None:
                    try:
                        threading.Thread(target=self._ask, args=(now,), name="dsopt-gpus", daemon=True).start()
                    except RuntimeError:  # there can be no more threads; the next look may find some
                        break
                    self._began_at = now
                is_answered = self._looked.wait(max(0.0, min(until, self._began_at + patience) - now))
                if not is_answered and self._began_at is not None:
                    is_silent = time.monotonic() - self._began_at >= SILENT_SECONDS
                    is_news, self._is_silent = is_silent and not self._is_silent, is_silent
                    break
        if is_news:
            self._on_silence()

    def _ask(self, began_at: float) -> None:
        gpus: list[Gpu] = []
        try:
            with contextlib.suppress(DsoptError):  # a run that meets it says so
                gpus = installed_gpus()
        finally:
            users = [(gpu.index, user) for gpu in gpus if gpu.index in self._watched for user in gpu.users]
            with self._looked:
                self._since = {one: self._since.get(one, began_at) for one in users if _counts(one[1])}
                self._looked_at, self._began_at, self._is_silent = began_at, None, False
                self._looked.notify_all()


def _counts(user: User) -> bool:
    """Whether a process may be a stranger: some drivers tell a container's own by other numbers.

    The server of NVIDIA's MPS computes for others, and stays when they have gone. To itself, this process is none.
    """
    return _MPS not in user.text and user.pid != os.getpid() and (user.ticks is not None or _is_first_namespace())


def _is_first_namespace() -> bool:
    """Whether this process sees all processes of the machine (`PROC_PID_INIT_INO` in Linux's proc_ns.h)."""
    with contextlib.suppress(OSError):
        return Path("/proc/self/ns/pid").readlink() == Path("pid:[4026531836]")
    return False


class Visits:
    """Whether strangers were on the GPUs of one run: such as stayed, since the driver may list one that has ended.

    Args:
        strangers: of the worker.
        indices: the run's GPUs.
    """

    def __init__(self, strangers: Strangers, indices: Collection[int]) -> None:
        self._strangers, self._indices = strangers, indices
        self._told = ""

    def look(self, age: float = _LOOK_SECONDS, patience: float = 0.0) -> str:
        """Who was there until now, as a sentence without its end; empty: nobody. Nothing waits for the driver."""
        on = self._strangers.on(self._indices, stayed=STAYED_SECONDS, age=age, patience=patience)
        for index, users in on.items():
            self._told = self._told or used_by(index, users)
        return self._told

    def at_the_end(self) -> str:
        """The same after a last look, for which it waits if somebody has just come."""
        if not self.look(0.0, _PATIENCE_SECONDS) and self._strangers.on(self._indices):
            time.sleep(STAYED_SECONDS)
            self.look(0.0, _PATIENCE_SECONDS)
        return self._told
