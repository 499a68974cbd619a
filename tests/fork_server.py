"""Runs the `dsopt` command, and scripts, in processes that are forked from one that has imported what they need.

To import everything takes a command two seconds, and a script torch as long, which hundreds of tests would pay. Each is
a process of its own with its own folder, environment and output, as if it had been typed; only what Python has loaded
is already there.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Literal, NoReturn

Kind = Literal["commands", "scripts"]
Streams = tuple[int, int, int]  # descriptors of a program's input, output and errors
_NEEDED = {
    "commands": (
        "dsopt.api.study",
        "dsopt.api.workers",
        "dsopt.api.tuning",
        "dsopt.cli.live",
        "psycopg",
        "scipy.stats",
    ),
    "scripts": ("dsopt.probe.isolation", "dsopt.launch.undone", "torch"),
}
ROOT = Path(__file__).parents[1]
_LOADED_FROM = {name: os.environ.get(name) for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")}


class Command:
    """The `dsopt` command with these arguments, which runs; used as a `subprocess.Popen`.

    Args:
        streams: None: no input, and one pipe that `stdout` reads.
    """

    def __init__(
        self, args: Sequence[str], cwd: Path, environment: Mapping[str, str], streams: Streams | None = None
    ) -> None:
        self.args = ["dsopt", *args]
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        with contextlib.ExitStack() as opened:
            if streams is None:
                reading, writing = os.pipe()
                self.stdout = os.fdopen(reading, encoding="utf-8")
                opened.callback(os.close, writing)
                streams = (opened.enter_context(open(os.devnull)).fileno(), writing, writing)
            self._fork = _fork(_server("commands")[0], "", args, cwd, environment, streams)
            self._answers = self._fork.makefile("r")
            self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """Its exit code, or minus a signal; None while it runs."""
        return self.returncode if self._has_ended(0) else None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end."""
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """What it prints from now to its end."""
        assert self.stdout is not None
        deadline = None if timeout is None else time.monotonic() + timeout
        parts: list[bytes] = []
        while _is_readable(self.stdout.fileno(), _left(deadline)):
            parts.append(os.read(self.stdout.fileno(), 65536))
            if not parts[-1]:
                self.stdout.close()
                self.wait(_left(deadline))
                return b"".join(parts).decode(), None
        raise subprocess.TimeoutExpired(self.args, timeout or 0, b"".join(parts))

    def send_signal(self, number: int) -> None:
        """Sends it a signal if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, seconds: float | None) -> bool:
        if self.returncode is None and _is_readable(self._fork.fileno(), seconds):
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._fork.close()
        return self.returncode is not None


def loads_alike(environment: Mapping[str, str]) -> bool:
    """Whether a program with this environment would load the modules and libraries that a fork has."""
    return all(environment.get(name) == value for name, value in _LOADED_FROM.items())


def run_script(
    code: str, args: Sequence[str], cwd: Path, environment: Mapping[str, str], seconds: float
) -> tuple[int, str, str]:
    """Does what `python -c CODE ARGS` does. Returns the exit code (or minus a signal), the output and the errors."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, open(os.devnull, "rb") as nothing:
        streams = (nothing.fileno(), output.fileno(), errors.fileno())
        with _fork(_server("scripts")[0], code, args, cwd, environment, streams) as fork:
            fork.settimeout(seconds)
            with fork.makefile("r") as answers:
                _, exit_code = answers.readline(), int(answers.readline())
        output.seek(0)
        errors.seek(0)
        return exit_code, output.read().decode(), errors.read().decode()


def make_command(folder: Path) -> None:
    """Makes `dsopt` in a folder, for the path of a shell: a small program that has the command run in a fork."""
    program = folder / "dsopt"
    words = shlex.join([sys.executable, "-SI", __file__, "relay", _server("commands")[0]])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)


def _relay(address: str, *args: str) -> NoReturn:
    """Runs the command in a fork as if it were this process."""
    with _fork(address, "", args, Path.cwd(), os.environ, (0, 1, 2)) as fork, fork.makefile("r") as answers:
        pid = int(answers.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        exit_code = int(answers.readline())
    if exit_code < 0:
        signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    sys.exit(exit_code)


def _fork(
    address: str, code: str, args: Sequence[str], cwd: Path, environment: Mapping[str, str], streams: Streams
) -> socket.socket:
    """Has a server start a program.

    Returns what answers with the program's process number, and with its exit code when it has ended.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    socket.send_fds(connection, [b"."], streams)
    connection.sendall(json.dumps([code, [*map(str, args)], str(cwd), dict(environment)]).encode())
    connection.shutdown(socket.SHUT_WR)
    return connection


def _is_readable(descriptor: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


@functools.cache
def _server(kind: Kind) -> tuple[str, subprocess.Popen[bytes]]:
    """This process's server of a kind: its address, and what holds its input, with which it ends."""
    address = tempfile.mkdtemp(prefix=f"dsopt-{kind}-") + "/s"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fork_server", kind, address],
        cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    return address, process


def _serve(kind: Kind, address: str) -> None:
    """Forks a process for each request until the one that started this ends."""
    for name in _NEEDED[kind]:
        importlib.import_module(name)
    if kind == "commands":
        _import_all(importlib.import_module("dsopt.cli"))
        importlib.import_module("tests.revisions").execute_beforehand()
    gc.freeze()  # else the end of each process would walk through all that is loaded
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(address)
        listener.listen()
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin.buffer, selectors.EVENT_READ)
        print("ready", flush=True)
        while all(key.fileobj is listener for key, _ in selector.select()):
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                selector.close()
                _answer(kind, connection)
            connection.close()
    Path(address).unlink()
    Path(address).parent.rmdir()


def _answer(kind: Kind, connection: socket.socket) -> NoReturn:
    """Runs one program in a child, and answers with its process number, then with its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    code, args, cwd, environment = json.loads(b"".join(iter(lambda: connection.recv(65536), b"")))
    child = os.fork()
    if child == 0:
        connection.close()
        _prepare(cwd, environment, streams)
        _run_and_exit(kind, code, args, cwd)
    for descriptor in streams:
        os.close(descriptor)  # whoever reads them sees the end when the program ends
    connection.sendall(b"%d\n" % child)
    _, status = os.waitpid(child, 0)
    connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _run_and_exit(kind: Kind, code: str, args: list[str], cwd: str) -> NoReturn:
    """Ends as Python does, but does not tear down what is loaded: with torch, that would take half a second."""
    exit_code = 0
    try:
        if kind == "commands":  # as `python -m dsopt` does
            sys.path[0], sys.argv = cwd, ["dsopt", *args]
            runpy.run_module("dsopt", run_name="__main__", alter_sys=True)
        else:
            sys.path[0], sys.argv = "", ["-c", *args]
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), main.__dict__)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        exit_code = int(ended.code is not None) if not isinstance(ended.code, int) else ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        exit_code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(exit_code)


def _prepare(cwd: str, environment: dict[str, str], streams: Sequence[int]) -> None:
    os.setsid()  # whatever terminal the tests run in
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)


def _import_all(package: ModuleType) -> None:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


if __name__ == "__main__":
    if sys.argv[1] == "relay":
        _relay(*sys.argv[2:])
    _serve(*sys.argv[1:])
