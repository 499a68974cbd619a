"""Makes the system show a forked process with its own environment."""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from dsopt.protocol.run_dir import ROOM_VARIABLE


class EnvironmentBlock:
    """Where the kernel keeps the environment that a process was started with: what `/proc/<pid>/environ` shows.

    A fork shows that of the process it was forked from. The block is memory of the process itself, at the end of its
    stack, so a rank writes its own environment there, and is found by its run directory like any other. To be made
    before anything else looks at the environment: libraries may keep pointers into the block.
    """

    def __init__(self) -> None:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        self._start, end = int(fields[47]), int(fields[48])  # env_start and env_end, proc(5)
        self._size = end - self._start
        environment = {key: value for key, value in os.environ.items() if key != ROOM_VARIABLE}
        os.environ.clear()
        os.environ.update(environment)  # the C library copies each of them

    def refusal(self) -> str | None:
        """Why dsopt could not find ranks by their environment here, or None."""
        self.show(os.environ)
        shown = Path("/proc/self/environ").read_bytes().rstrip(b"\0")
        return None if shown == _block(os.environ).rstrip(b"\0") else "this system does not show a changed environment"

    def show(self, environment: Mapping[str, str]) -> None:
        """Makes the system show this environment.

        Raises:
            OSError: it is longer than the block.
        """
        content = _block(environment)
        if len(content) > self._size:
            raise OSError(f"an environment of {len(content)} bytes does not fit into {self._size}")
        ctypes.memset(self._start, 0, self._size)
        ctypes.memmove(self._start, content, len(content))


def _block(environment: Mapping[str, str]) -> bytes:
    return b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in environment.items())
