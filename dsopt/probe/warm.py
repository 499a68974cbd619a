"""A process that has imported what the script imports and forks one rank of each run.

`python -u -m dsopt.probe.warm SOCKET` is started with the environment, working directory and interpreter options that
this rank has in all runs. It speaks lines of JSON over a socket, an answer to each request, and ends when the other end
is closed or its parent dies:

    {"import": {name: file, …}}                               {"refusal": null | why}
    {"fork": {argv, environment, cwd, stdout, stderr, stays}} {"refusal": null, "pid": pid} | {"refusal": why}
    {"wait": pid}                                             {"exit_code": code, negative for a signal}
    {"order": order}                                          {"refusal": null | why}

It reaps a rank only when asked to wait for it, so that until then its pid means nothing else. With `stays` the rank
that was forked last is given orders (`orders.py`), and takes over runs when its own has been measured.
"""

import ctypes
import importlib
import json
import os
import random
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dsopt.experiment.events import EventWriter, Parked
from dsopt.experiment.rundir import RUN_DIR_VARIABLE, RunDir
from dsopt.probe import __main__ as probe
from dsopt.probe.beforehand import import_all, unfit_to_fork
from dsopt.probe.environment_block import EnvironmentBlock
from dsopt.probe.orders import LeaveScript, Orders
from dsopt.probe.parting import Surroundings

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_MADV_POPULATE_WRITE = 23  # linux/mman.h, since 5.14; where it is not known, nothing is done
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A rank to be: as it would be started by itself."""

    argv: list[str]
    environment: dict[str, str]
    cwd: str
    stdout: str
    stderr: str
    stays: bool


def main() -> None:
    """Serves until the worker is gone. Returns in the worker's process and, to run the script, in each rank's."""
    parent = os.getppid()
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    server = _Server()
    rank = server.serve(socket.socket(fileno=int(sys.argv[1])))
    if rank is None:
        return
    _own_memory()
    if server.orders is None:
        probe.main(is_warm=True)
    else:
        server.run_in_turn(rank, server.orders)


class _Server:
    """Forks ranks, and is what remains of itself in each of them.

    Attributes:
        orders: in a rank that stays, what it is told.
    """

    def __init__(self) -> None:
        self.orders: Orders | None = None
        self._block = EnvironmentBlock()
        self._changes: dict[str, str] = {}  # of the environment, by imports
        self._to_rank: IO[bytes] | None = None

    def serve(self, connection: socket.socket) -> Rank | None:
        """Answers requests. Returns a rank in its forked process, None at the end."""
        with connection, connection.makefile("r", encoding="utf-8") as requests:
            for line in requests:
                request = json.loads(line)
                answer: dict[str, Any]
                if "import" in request:
                    before = dict(os.environ)
                    answer = {"refusal": self._block.refusal() or import_all(request["import"])}
                    self._changes = {key: value for key, value in os.environ.items() if before.get(key) != value}
                elif "fork" in request:
                    answer = {"refusal": unfit_to_fork()}
                    if answer["refusal"] is None:
                        rank = Rank(**request["fork"])
                        answer["pid"] = self._fork(rank)
                        if answer["pid"] == 0:
                            return rank
                elif "order" in request:
                    answer = {"refusal": self._pass_on(request["order"])}
                else:
                    answer = {"exit_code": os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])}
                connection.sendall(json.dumps(answer).encode() + b"\n")
        return None

    def run_in_turn(self, rank: Rank, orders: Orders) -> None:
        """Runs the script of a rank, and of those after it; returns when a script has ended by itself."""
        surroundings = Surroundings()
        while True:
            try:
                probe.main(is_warm=True, on_step=orders.at_step)
                return
            except LeaveScript as leave:
                left = leave.left
            assert left is not None
            surroundings.restore()
            refusal = surroundings.refusal(left)
            number = int(rank.environment["RANK"])
            EventWriter(RunDir(rank.environment[RUN_DIR_VARIABLE]), number).emit(Parked(rank=number, refusal=refusal))
            following = orders.next_run()
            if following is None:
                os._exit(0)  # what scripts have left to be done at the end is not done: they were not to end here
            rank = Rank(**following)
            self._become(rank)

    def _fork(self, rank: Rank) -> int:
        """Forks a rank; returns its pid once it is a session of its own and carries its run directory, or 0 in it."""
        if self._to_rank is not None:
            self._to_rank.close()  # an earlier rank is told nothing any more
            self._to_rank = None
        ready, done = os.pipe()
        orders, to_rank = os.pipe() if rank.stays else (None, None)
        pid = os.fork()
        if pid == 0:
            os.close(ready)
            if orders is not None and to_rank is not None:
                os.close(to_rank)
                self.orders = Orders(orders)
            os.setsid()
            self._become(rank)
            os.close(done)
            return 0
        if orders is not None and to_rank is not None:
            os.close(orders)
            self._to_rank = os.fdopen(to_rank, "wb", buffering=0)
        os.close(done)
        os.read(ready, 1)
        os.close(ready)
        return pid

    def _pass_on(self, order: Mapping[str, Any]) -> str | None:
        """Tells the rank that was forked last. Says why it cannot be told, or None."""
        try:
            assert self._to_rank is not None
            self._to_rank.write(json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            return "the rank is gone"
        return None

    def _become(self, rank: Rank) -> None:
        """Makes this process what `rank.argv` would have started."""
        for descriptor, path in ((1, rank.stdout), (2, rank.stderr)):
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(log, descriptor)
            os.close(log)
        os.environ.clear()
        os.environ.update(rank.environment)
        self._block.show(rank.environment)
        os.environ.update(self._changes)
        os.chdir(rank.cwd)
        sys.argv = [str(probe.__file__), *rank.argv[rank.argv.index("-m") + 2 :]]
        sys.orig_argv = list(rank.argv)
        importlib.invalidate_caches()
        _seed()


def _own_memory() -> None:
    """Copies what is still shared with the process forked from, in order, before any of it is used.

    Copied page by page as it happens to be written, it would lie scattered, and that would happen during steps: they
    were seen to take some 8 % longer (docs/benchmarks.md).
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions = line.split()[:2]
        if permissions[1] == "w" and permissions[3] == "p":
            start, end = (int(address, 16) for address in addresses.split("-"))
            _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_POPULATE_WRITE)


def _seed() -> None:
    """Seeds every generator that imports have made from the system's entropy, as a new process does."""
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.default_generator.seed()
        if torch.cuda.is_initialized():
            torch.cuda.seed_all()


if __name__ == "__main__":
    main()
