"""Runs the `dsopt` command in processes that are forked from one that has imported it.

To import everything takes a command two seconds, which hundreds of tests would pay. Each command is a process of its
own with its own folder, environment and output, as if it had been typed; only what Python has loaded is already there.
"""

import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
PYTHONPATH = os.environ.get("PYTHONPATH")  # commands with another one load other modules: they cannot be run here


def run_command(args: Sequence[str], cwd: Path, environment: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """Runs `dsopt` with these arguments to its end. Returns its exit code (or minus a signal) and all it printed."""
    with socket.socket(socket.AF_UNIX) as connection, tempfile.TemporaryFile() as output:
        connection.settimeout(seconds)
        connection.connect(_server())
        socket.send_fds(connection, [b"."], [output.fileno()])
        connection.sendall(json.dumps([list(args), str(cwd), dict(environment)]).encode())
        connection.shutdown(socket.SHUT_WR)
        code = connection.recv(64)
        output.seek(0)
        return int(code), output.read().decode()


@functools.cache
def _server() -> str:
    """The address of this process's server, which ends with it."""
    address = tempfile.mkdtemp(prefix="dsopt-commands-") + "/s"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.command_server", address],
        cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    _server.process = process  # type: ignore[attr-defined] - its end of the pipe closes with this process
    return address


def _serve(address: str) -> None:
    """Forks a process for each command until the one that started this ends."""
    import dsopt.cli

    _import_all(dsopt.cli)
    for name in (
        "dsopt.api.study",
        "dsopt.api.workers",
        "dsopt.api.tuning",
        "dsopt.cli.live",
        "psycopg",
        "scipy.stats",
    ):
        importlib.import_module(name)
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
                _answer(connection)
                return
            connection.close()
    Path(address).unlink()
    Path(address).parent.rmdir()


def _answer(connection: socket.socket) -> None:
    """Runs one command in a child, and answers with its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, (output,), _, _ = socket.recv_fds(connection, 1, 1)
    args, cwd, environment = json.loads(b"".join(iter(lambda: connection.recv(65536), b"")))
    child = os.fork()
    if child == 0:
        connection.close()
        _run(args, cwd, environment, output)
        return
    _, status = os.waitpid(child, 0)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _run(args: list[str], cwd: str, environment: dict[str, str], output: int) -> None:
    """Does in this process what `python -m dsopt` does."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = cwd
    sys.argv = ["dsopt", *args]
    runpy.run_module("dsopt", run_name="__main__", alter_sys=True)


def _import_all(package: ModuleType) -> None:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


if __name__ == "__main__":
    _serve(sys.argv[1])
