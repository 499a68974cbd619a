"""Who else computes on the GPUs of a worker: programs that are no runs of dsopt, and came after the worker."""

import contextlib
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.launch.gpus import User, installed_gpus, used_by

_LOOK_SECONDS: Final = 2.0
_MPS: Final = "(nvidia-cuda-mps"  # the beginning of a process's name, of which the kernel keeps 15 letters
_STAYED_SECONDS: Final = 1.0  # the driver may still list a process that has just ended


class Strangers:
    """Sees them by the driver, for all lanes of a worker. GPUs that it was given though they were in use do not count.

    Args:
        pool: the worker's devices.
    """

    def __init__(self, pool: DevicePool) -> None:
        self._watched = frozenset(pool.indices) - pool.shared if pool.kind == "gpu" else frozenset()
        self._lock = threading.Lock()
        self._looked_at = -_LOOK_SECONDS
        self._since: Mapping[tuple[int, User], float] = {}  # by GPU and user: when a look saw it first

    def on(
        self, indices: Iterable[int], *, stayed: float = 0.0, age: float = _LOOK_SECONDS
    ) -> Mapping[int, Collection[User]]:
        """Who is on some GPUs, by index; one that nobody is on is not among them.

        Args:
            indices: the GPUs.
            stayed: for how many seconds at least they have been seen there.
            age: seconds that the last look may be old.
        """
        if not self._watched:
            return {}
        with self._lock:
            if time.monotonic() - self._looked_at >= age:
                self._look()
            found: dict[int, list[User]] = {index: [] for index in indices}
            for (index, user), since in self._since.items():
                if index in found and self._looked_at - since >= stayed:
                    found[index].append(user)
        return {index: users for index, users in found.items() if users}

    def _look(self) -> None:
        self._looked_at = now = time.monotonic()
        try:
            gpus = installed_gpus()
        except DsoptError:  # a run that meets it says so
            gpus = []
        seen = [(gpu.index, user) for gpu in gpus if gpu.index in self._watched for user in gpu.users if _counts(user)]
        self._since = {one: self._since.get(one, now) for one in seen}


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

    def look(self, age: float = _LOOK_SECONDS) -> str:
        """Who was there until now, as a sentence without its end; empty: nobody."""
        for index, users in self._strangers.on(self._indices, stayed=_STAYED_SECONDS, age=age).items():
            self._told = self._told or used_by(index, users)
        return self._told

    def at_the_end(self) -> str:
        """The same after a last look, for which it waits if somebody has just come."""
        if not self.look(age=0.0) and self._strangers.on(self._indices):
            time.sleep(_STAYED_SECONDS)
            self.look(age=0.0)
        return self._told
