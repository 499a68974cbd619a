"""Ends the current run when its worker dies, however it dies.

A worker that is killed with SIGKILL cannot end anything itself. It has the only write end of a pipe to this small
process, and writes port and run directory of each launch to it. When the pipe reads end-of-file, the worker is gone.

If the whole machine dies, nobody ends anything. So the guard also notes all the time that the run goes on: whoever
undoes it later knows until when files may be the run's.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO

from dsopt.launch.leftovers import remove_shared_memory
from dsopt.launch.processes import end_run, kill_all
from dsopt.launch.swap import remove_swap
from dsopt.launch.undone import undo
from dsopt.protocol.run_dir import RunDir
from dsopt.study.own_programs import own_environment, own_program

_FORK_SECONDS = 2.0
_SIGN_SECONDS = 5.0
_NONE = "\n"  # no run
_END = "end\n"  # the end of the file does not tell it, if a fork of the worker has the pipe open


class Guard:
    """The worker's side: start one, tell it of each launch, close it at the end.

    If something kills it, another one takes its place.

    Args:
        tell: gets a sentence about that.
    """

    def __init__(self, tell: Callable[[str], None] = lambda _: None) -> None:
        self._tell = tell
        self._current = _NONE
        self._process = self._start()

    def watch(self, run_dir: Path, port: int) -> None:
        """Makes sure that this run ends with the worker. Call it before the launch."""
        self._current = f"{port} {run_dir}\n"
        self.replace_if_dead()
        self._say(self._current)

    def rest(self) -> None:
        """Forgets the run, which is over: others may make its folder anew."""
        self._current = _NONE
        self._say(self._current)

    def replace_if_dead(self) -> None:
        """Starts another guard if something has ended this one."""
        code = self._process.poll()
        if code is None:
            return
        self._tell(
            f"The guard, which ends runs if this worker is killed, was itself ended (exit code {code}). dsopt has "
            "started another one."
        )
        self._drop()
        self._process = self._start()
        self._say(self._current)

    def close(self) -> None:
        """Lets the guard end; there is no current run any more."""
        self._say(_END)
        self._drop()

    def _start(self) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            own_program("dsopt.launch.guard"),
            env=own_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the worker's terminal is not for it
            text=True,
        )
        assert process.stdin is not None
        pipe = weakref.ref(process.stdin)
        os.register_at_fork(after_in_child=lambda: _close(pipe()))
        return process

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it is dead or closed, which the next look finds
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _drop(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_FORK_SECONDS)
        except subprocess.TimeoutExpired:  # somebody stopped it
            self._process.kill()
            self._process.wait()


def _close(pipe: IO[str] | None) -> None:
    """Closes a pipe in a fork of the worker, which would keep it open after the worker's death."""
    with contextlib.suppress(OSError, ValueError):
        if pipe is not None:
            os.close(pipe.fileno())


def _sign(latest: Callable[[], str]) -> None:
    while True:
        _, _, path = latest().partition(" ")
        if path:
            RunDir(Path(path)).sign()
        time.sleep(_SIGN_SECONDS)


def main() -> None:
    """The guard's side."""
    latest = ""
    threading.Thread(target=lambda: _sign(lambda: latest), daemon=True).start()
    for line in sys.stdin:
        if line == _END:
            return
        latest = line.rstrip("\n")
    if latest:
        port, _, path = latest.partition(" ")
        run_dir = RunDir(Path(path))
        end_run(run_dir)
        # repeatedly for a while: a process that has just been forked shows its environment only after its exec
        deadline = time.monotonic() + _FORK_SECONDS
        while time.monotonic() < deadline:
            kill_all(run_dir.path)
            time.sleep(0.05)
        undo(run_dir)
        remove_shared_memory(int(port))
        remove_swap(run_dir.path)
        run_dir.remove_node_environment()


if __name__ == "__main__":
    main()
