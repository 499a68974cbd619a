"""Who else computes on the GPUs of a worker: programs that are no runs of dsopt, and came after the worker."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.launch.gpus import User, installed_gpus, used_by

_LOOK_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 3.0  # without its persistence mode, a driver takes seconds to begin
_SILENT_SECONDS: Final = 30.0
_MPS: Final = "(nvidia-cuda-mps"  # the beginning of a process's name, of which the kernel keeps 15 letters
_STAYED_SECONDS: Final = 1.0  # the driver may still list a process that has just ended


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
            looked_at, seen = self._looked_at, self._since
        found: dict[int, list[User]] = {index: [] for index in indices}
        for (index, user), since in seen.items():
            if index in found and looked_at - since >= stayed:
                found[index].append(user)
        return {index: users for index, users in found.items() if users}

    def _look(self, since: float, patience: float) -> None:
        """Waits for a look that began since then, but not for a driver that has let others wait for so long."""
        until = time.monotonic() + patience
        with self._looked:
            was_silent = self._is_silent
            while self._looked_at < since:
                now = time.monotonic()
                if self._began_at is None:
                    self._began_at = now
                    threading.Thread(target=self._ask, args=(now,), name="dsopt-gpus", daemon=True).start()
                self._is_silent = now - self._began_at > _SILENT_SECONDS
                if not self._looked.wait(max(0.0, min(until, self._began_at + patience) - now)):
                    break
            is_new = self._is_silent and not was_silent
        if is_new:
            self._on_silence()

    def _ask(self, began_at: float) -> None:
        try:
            gpus = installed_gpus()
        except DsoptError:  # a run that meets it says so
            gpus = []
        seen = [(gpu.index, user) for gpu in gpus if gpu.index in self._watched for user in gpu.users if _counts(user)]
        with self._looked:
            self._since = {one: self._since.get(one, began_at) for one in seen}
            self._looked_at, self._began_at, self._is_silent = began_at, None, False
            self._looked.notify_all()


def _counts(user: User) -> bool:
    """Whether a process may be a stranger: some drivers tell a container's own by other numbers.

    The server of NVIDIA's MPS computes for others, and stays when they have gone.
    """
    return _MPS not in user.text and (user.ticks is not None or _is_first_namespace())


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
        on = self._strangers.on(self._indices, stayed=_STAYED_SECONDS, age=age, patience=patience)
        for index, users in on.items():
            self._told = self._told or used_by(index, users)
        return self._told

    def at_the_end(self) -> str:
        """The same after a last look, for which it waits if somebody has just come."""
        if not self.look(0.0, _PATIENCE_SECONDS) and self._strangers.on(self._indices):
            time.sleep(_STAYED_SECONDS)
            self.look(0.0, _PATIENCE_SECONDS)
        return self._told
