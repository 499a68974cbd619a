"""A process that has imported what the script imports and forks one rank of each run.

`python -u -m dsopt.probe.warm SOCKET` is started with the environment, working directory and interpreter options that
this rank has in all runs. It speaks lines of JSON over a socket, an answer to each request, and ends when the other end
is closed or its parent dies:

    {"import": {name: file, …}}                               {"refusal": null | why, "since": null | name}
    {"fork": {argv, environment, cwd, stdout, stderr}}        {"refusal": null, "pid": pid} | {"refusal": why}
    {"wait": pid}                                             {"exit_code": code, negative for a signal}

It reaps a rank only when asked to wait for it, so that nothing else gets its pid before.
"""

import ctypes
import importlib
import json
import os
import random
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsopt.probe import __main__ as probe
from dsopt.probe.beforehand import Refusal, import_all, unfit_to_fork
from dsopt.probe.environment_block import EnvironmentBlock
from dsopt.probe.isolation import Isolation
from dsopt.protocol.presence import be_present
from dsopt.protocol.private import FILE_MODE

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


def main() -> None:
    """Serves until the worker is gone. Returns in the worker's process and, to run the script, in each rank's."""
    parent = os.getppid()
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    # torch then asks the driver's library whether there are GPUs, and does not begin with CUDA, which bears no fork
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    isolation = Isolation()  # before anything is imported that it wraps
    is_rank = _Server().serve(socket.socket(fileno=int(sys.argv[1])))
    if is_rank:
        _own_memory()
        probe.main(isolation)


class _Server:
    """Forks ranks, and is what remains of itself in each of them."""

    def __init__(self) -> None:
        self._block = EnvironmentBlock()
        self._changes: dict[str, str] = {}  # of the environment, by imports

    def serve(self, connection: socket.socket) -> bool:
        """Answers requests. True: this is the process of a rank now. False: there are no more requests."""
        with connection, connection.makefile("r", encoding="utf-8") as requests:
            for line in requests:
                request = json.loads(line)
                answer: dict[str, Any]
                if "import" in request:
                    before = dict(os.environ)
                    refusal = self._import(request["import"])
                    answer = {"refusal": refusal and refusal.why, "since": refusal and refusal.since}
                    self._changes = {key: value for key, value in os.environ.items() if before.get(key) != value}
                elif "fork" in request:
                    answer = {"refusal": unfit_to_fork()}
                    if answer["refusal"] is None:
                        answer["pid"] = self._fork(Rank(**request["fork"]))
                        if answer["pid"] == 0:
                            return True
                else:
                    answer = {"exit_code": os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])}
                connection.sendall(json.dumps(answer).encode() + b"\n")
        return False

    def _import(self, modules: dict[str, str]) -> Refusal | None:
        why = self._block.refusal()
        return import_all(modules) if why is None else Refusal(why=why)

    def _fork(self, rank: Rank) -> int:
        """Forks a rank; returns its pid once it is a session of its own and carries its run directory, or 0 in it."""
        ready, done = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ready)
            os.setsid()
            self._become(rank)
            os.close(done)
            return 0
        os.close(done)
        os.read(ready, 1)
        os.close(ready)
        return pid

    def _become(self, rank: Rank) -> None:
        """Makes this process what `rank.argv` would have started."""
        for descriptor, path in ((1, rank.stdout), (2, rank.stderr)):
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
            be_present(log)
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
    """Copies the memory that it still shares with the process that forked it, in order, before using any of it.

    If pages were copied only when they are written, they would be scattered, and the copies would happen during steps,
    which took some 8 % longer (docs/benchmarks.md).
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions = line.split()[:2]
        if permissions[1] == "w" and permissions[3] == "p":
            start, end = (int(address, 16) for address in addresses.split("-"))
            _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_POPULATE_WRITE)


def _seed() -> None:
    """Seeds every generator that imports have created, from the system's entropy, as a new process does."""
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
