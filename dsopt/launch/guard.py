"""Ends the current run when its worker dies, however it dies.

A worker that is killed with SIGKILL cannot end anything itself. It has the only write end of a pipe to this small
process, and writes port and run directory of each launch to it. When the pipe reads end-of-file, the worker is gone.
"""

import subprocess
import sys
import time
from pathlib import Path

from dsopt.launch.leftovers import remove_shared_memory
from dsopt.launch.processes import kill_all
from dsopt.launch.swap import remove_swap
from dsopt.study.own_programs import own_environment, own_program

_FORK_SECONDS = 2.0


class Guard:
    """The worker's side: start one, tell it of each launch, close it at the end."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            own_program("dsopt.launch.guard"),
            env=own_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the worker's terminal is not for it
            text=True,
        )

    def watch(self, run_dir: Path, port: int) -> None:
        """Makes sure that this run ends with the worker. Call it before the launch."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{port} {run_dir}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Lets the guard end; there is no current run any more."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """The guard's side."""
    latest = ""
    for line in sys.stdin:
        latest = line.rstrip("\n")
    if latest:
        port, _, run_dir = latest.partition(" ")
        # repeatedly for a while: a process that has just been forked shows its environment only after its exec
        deadline = time.monotonic() + _FORK_SECONDS
        while time.monotonic() < deadline:
            kill_all(Path(run_dir))
            time.sleep(0.05)
        remove_shared_memory(int(port))
        remove_swap(Path(run_dir))


if __name__ == "__main__":
    main()
