"""Ends the run in hand when its worker dies, however it dies.

A worker killed by SIGKILL cannot end anything itself. It holds the only write end of a pipe to this small process and
writes port and run directory of each launch to it; when the pipe reads end-of-file, the worker is gone.
"""

import subprocess
import sys
from pathlib import Path

from dsopt.experiment.leftovers import remove_shared_memory
from dsopt.experiment.processes import kill_all


class Guard:
    """The worker's side: start one, tell it of each launch, close it at the end."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dsopt.experiment.guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the worker's terminal is not for it
            text=True,
        )

    def watch(self, run_dir: Path, port: int) -> None:
        """From now on this run ends with the worker. To be called before the launch."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{port} {run_dir}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Lets the guard end, together with whatever still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """The guard's side."""
    latest = ""
    for line in sys.stdin:
        latest = line.rstrip("\n")
    if latest:
        port, _, run_dir = latest.partition(" ")
        # twice: a launcher may have forked a rank between the look and the kill
        kill_all(Path(run_dir))
        kill_all(Path(run_dir))
        remove_shared_memory(int(port))


if __name__ == "__main__":
    main()
