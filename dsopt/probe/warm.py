"""A process that has imported what the script imports and forks one rank of each run.

`python -u -m dsopt.probe.warm SOCKET` is started with the environment, working directory and interpreter options that
this rank has in all runs. It speaks lines of JSON over a socket, an answer to each request, and ends when the other end
is closed or its parent dies:

    {"import": {name: file, …}}                               {"refusal": null | why}
    {"fork": {argv, environment, cwd, stdout, stderr}}        {"refusal": null, "pid": pid} | {"refusal": why}
    {"wait": pid}                                             {"exit_code": code, negative for a signal}

It reaps a rank only when asked to wait for it, so that until then its pid means nothing else.
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
from typing import Any

from dsopt.experiment.rundir import ROOM_VARIABLE, RUN_VARIABLES
from dsopt.probe import __main__ as probe
from dsopt.probe.imported import imported_modules, is_standard

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
    rank = _serve(socket.socket(fileno=int(sys.argv[1])))
    if rank is not None:
        _own_memory()
        probe.main(is_warm=True)


def _serve(connection: socket.socket) -> Rank | None:
    """Answers requests. Returns a rank in its forked process, None at the end."""
    block = EnvironmentBlock()
    changes: dict[str, str] = {}  # of the environment, by imports
    with connection, connection.makefile("r", encoding="utf-8") as requests:
        for line in requests:
            request = json.loads(line)
            answer: dict[str, Any]
            if "import" in request:
                before = dict(os.environ)
                answer = {"refusal": block.refusal() or import_all(request["import"])}
                changes = {key: value for key, value in os.environ.items() if before.get(key) != value}
            elif "fork" in request:
                answer = {"refusal": unfit_to_fork()}
                if answer["refusal"] is None:
                    rank = Rank(**request["fork"])
                    answer["pid"] = _fork(rank, block)
                    if answer["pid"] == 0:
                        os.environ.update(changes)
                        return rank
            else:
                answer = {"exit_code": os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])}
            connection.sendall(json.dumps(answer).encode() + b"\n")
    return None


def import_all(modules: Mapping[str, str]) -> str | None:
    """Imports these modules, each from the file given. Says why ranks must not be forked after that, or None.

    Nothing may come from the working directory, which is the user's, nor read a variable that differs between runs.
    """
    there = set(sys.modules)  # what Python itself and this package import
    folder = sys.path.pop(0) if sys.path[0] in ("", str(Path.cwd())) else None
    watch = _EnvironmentWatch()
    name = ""
    try:
        for name in modules:
            _import_if_found(name)
            if watch.seen:
                return f"{name} reads the environment variable {watch.seen[0]} when it is imported"
    except BaseException as error:
        return f"{name} cannot be imported beforehand: {type(error).__name__}: {error}"
    finally:
        watch.end()
        if folder is not None:
            sys.path.insert(0, folder)
    for name, file in imported_modules().items():
        if name not in there and not is_standard(file) and modules.get(name) != file:
            return f"{name} would be imported beforehand from {file}, which the script does not do"
    return unfit_to_fork()


def _import_if_found(name: str) -> None:
    """Imports a module, unless it lies where only the package that carries it looks, as with those of setuptools."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            raise


def unfit_to_fork() -> str | None:
    """Why a fork of this process would not be like a new one, or None."""
    torch = sys.modules.get("torch")
    if (torch is not None and torch.cuda.is_initialized()) or "/dev/nvidia-uvm" in _open_files():
        return "an import has initialised CUDA, which does not survive a fork"
    _end_openblas_threads()
    threads = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    if len(threads) > 1:
        return f"an import has started threads, which do not survive a fork: {', '.join(sorted(threads)[:4])}"
    return None


def _open_files() -> set[str]:
    return {str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}


def _end_openblas_threads() -> None:
    """OpenBLAS starts its threads when it is loaded, and ends them itself before a fork; here that is done early."""
    libraries = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line}
    for library in libraries:
        shutdown = getattr(ctypes.CDLL(library), "blas_thread_shutdown_", None)  # its own handler (blas_server.c)
        if shutdown is not None:
            shutdown()


def _fork(rank: Rank, block: "EnvironmentBlock") -> int:
    """Forks a rank; returns its pid once it is a session of its own and carries its run directory, or 0 in it."""
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        _become(rank, block)
        os.close(done)
        return 0
    os.close(done)
    os.read(ready, 1)
    os.close(ready)
    return pid


def _become(rank: Rank, block: "EnvironmentBlock") -> None:
    """Makes this process what `rank.argv` would have started."""
    os.setsid()
    for descriptor, path in ((1, rank.stdout), (2, rank.stderr)):
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, descriptor)
        os.close(log)
    os.environ.clear()
    os.environ.update(rank.environment)
    block.show(rank.environment)
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
        sys.modules["torch"].default_generator.seed()


class _EnvironmentWatch:
    """Notes which variables that differ between runs are asked for."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._plain = type(os.environ)
        seen = self.seen

        class _Watched(os._Environ[str]):
            def __getitem__(self, key: str) -> Any:  # noqa: ANN401
                if key in RUN_VARIABLES:
                    seen.append(key)
                return super().__getitem__(key)

        os.environ.__class__ = _Watched

    def end(self) -> None:
        os.environ.__class__ = self._plain


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
        """Why ranks would not be found by their environment here, or None."""
        self.show(os.environ)
        shown = Path("/proc/self/environ").read_bytes().rstrip(b"\0")
        return None if shown == _block(os.environ).rstrip(b"\0") else "this system shows no changed environment"

    def show(self, environment: Mapping[str, str]) -> None:
        """Makes this the environment that the system shows.

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


if __name__ == "__main__":
    main()
