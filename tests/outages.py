"""What goes wrong around a database and a node, done for real: connections freeze, and nodes are others."""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import psutil
import pytest

from tests.conftest import Dsopt, start_process
from tests.postgres import started


class Freezer:
    """Stands between clients and a PostgreSQL server's socket.

    While it is frozen, nothing passes and nothing ends. `cut` ends every connection that there is.
    """

    def __init__(self, server: Path, folder: Path) -> None:
        self._server = str(server)
        self.frozen = threading.Event()
        self._closing = threading.Event()
        self._cuts = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / server.name))
        self._listener.listen()
        self._listener.settimeout(0.1)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._closing.set()
        self._listener.close()

    def cut(self) -> None:
        self._cuts += 1

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except (TimeoutError, OSError):
                continue
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, selectors.DefaultSelector() as selector:
            try:
                server.connect(self._server)
            except OSError:
                return
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            cuts = self._cuts
            while not self._closing.is_set() and self._cuts == cuts:
                for key, _ in selector.select(0.05):
                    while self.frozen.is_set():
                        if self._closing.wait(0.02):
                            return
                    assert isinstance(key.fileobj, socket.socket)
                    try:
                        data = key.fileobj.recv(65536)
                        if not data:
                            return
                        key.data.sendall(data)
                    except OSError:
                        return


class Server:
    """A PostgreSQL server of one test's own, which it may stop and start, and a socket that it may freeze."""

    def __init__(self, folder: Path, sockets: Path) -> None:
        self._server = started(folder)
        uri = self._server.get_uri()
        real = Path(uri.partition("?host=")[2]) / ".s.PGSQL.5432"
        self._real = real
        self._user = uri.partition("?host=")[0]
        self.freezer = Freezer(real, sockets)
        self.url = f"{self._user}?host={sockets}"
        self.direct_url = uri  # past the freezer

    def another(self, sockets: Path) -> tuple[Freezer, str]:
        """Another way to the server, that can be frozen or cut alone."""
        return Freezer(self._real, sockets), f"{self._user}?host={sockets}"

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return Path(self._server.pgdata)

    def stop(self) -> None:
        self._server._stop()

    def kill(self) -> None:
        """Ends it as a machine that dies would."""
        [pid, *_] = (self.data / "postmaster.pid").read_text().split()
        os.kill(int(pid), signal.SIGQUIT)
        while psutil.pid_exists(int(pid)) and psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.05)

    def start(self) -> None:
        # it waits ten seconds, which a busy machine may exceed; then the server comes up anyway, "starting" at first
        for _ in range(10):
            with contextlib.suppress(subprocess.SubprocessError, AssertionError):
                return self._server.ensure_postgres_running()
        raise AssertionError("the server does not start")

    def close(self) -> None:
        self.freezer.close()
        with contextlib.suppress(psutil.NoSuchProcess):  # a server that was stopped may still be going
            self._server.cleanup()


def on_node(
    dsopt: Dsopt, node: str, *args: str, output: IO[str] | int = subprocess.PIPE, **environment: str
) -> subprocess.Popen[str]:
    """Starts the command on this machine under another host name."""
    whom = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    if subprocess.run(["unshare", *whom, "--uts", "hostname", node], check=False, capture_output=True).returncode:
        pytest.skip("this user may not give a process another host name")
    renamed = f"hostname {node} && exec {sys.executable} -m dsopt {' '.join(args)}"
    argv = ["unshare", *whom, "--uts", "sh", "-c", renamed]
    return start_process(argv, dsopt.cwd, {**os.environ, **dsopt.environment, **environment}, output)
