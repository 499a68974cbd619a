"""Nodes of a cluster on one machine: each has its own name, address, processes and /dev/shm, and the same files.

A node is a set of Linux namespaces (hostname, mounts, processes). What runs on it cannot outlive it: when its first
process is killed, the kernel kills the others. All nodes share the machine's network; each has its own loopback
address, and knows the others by name.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

_ENTER = ("--uts", "--mount", "--pid")
_SET_UP = """
set -e
hostname "$0"
mount --make-rprivate /
mount --bind "$1" /etc/hosts
mount -t tmpfs tmpfs /dev/shm
sleep infinity &
echo ready
wait
"""  # the shell stays, as process 1, and collects what others leave


class Node:
    """A node.

    Attributes:
        name: its hostname.
        address: its own, such as `127.0.0.2`. Nothing keeps other programs of this machine from listening there.
    """

    def __init__(self, name: str, address: str, hosts: Path) -> None:
        self.name, self.address = name, address
        self._daemons: list[Daemon] = []
        self._unshare = subprocess.Popen(
            ["unshare", *_ENTER, "--fork", "--kill-child", "--mount-proc", "bash", "-c", _SET_UP, name, str(hosts)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self._unshare.stdout is not None
        said = self._unshare.stdout.readline()
        if said.strip() != "ready":
            self._unshare.kill()
            raise RuntimeError(f"node {name} did not start: {said}{self._unshare.communicate()[0]}")
        self._first = psutil.Process(self._unshare.pid).children()[0].pid

    def start(self, *command: str, log: Path, environment: Mapping[str, str] | None = None) -> "Daemon":
        """Starts a program that stays, with the working directory and variables of this process and those given."""
        with log.open("a") as output:
            process = subprocess.Popen(
                self._words(command), env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._daemons.append(Daemon(process, log))
        return self._daemons[-1]

    def run(
        self, *command: str, environment: Mapping[str, str] | None = None, seconds: float = 60, code: int = 0
    ) -> str:
        """Runs a program to its end, checks its exit code, gives all it printed."""
        ended = subprocess.run(
            self._words(command), env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
        )  # fmt: skip
        assert ended.returncode == code, f"exit code {ended.returncode} of {command} on {self.name}:\n{ended.stdout}"
        return ended.stdout

    def kill(self) -> None:
        """The node fails: all that runs on it is gone at once, as if somebody had pulled the plug."""
        if self._unshare.returncode is not None:
            return
        self._unshare.kill()  # --kill-child: the kernel then kills the node's first process, and that all others
        self._unshare.communicate()
        wait_until(lambda: not psutil.pid_exists(self._first), f"node {self.name} is gone", 30)
        for daemon in self._daemons:
            daemon.wait()

    def _words(self, command: Sequence[str]) -> list[str]:
        return ["nsenter", f"--target={self._first}", *_ENTER, "env", f"--chdir={Path.cwd()}", *command]


class Daemon:
    """A program on a node.

    Attributes:
        log: what it prints.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._nsenter, self.log = process, log

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._nsenter.poll() is None

    @property
    def children(self) -> list[psutil.Process]:
        """What it has started, such as a server for each session."""
        return [child for program in psutil.Process(self._nsenter.pid).children() for child in program.children()]

    @property
    def code(self) -> int | None:
        """Its exit code; None while it is alive."""
        return self._nsenter.poll()

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, and waits until it is gone. What it has started stays."""
        for program in psutil.Process(self._nsenter.pid).children() if self.is_alive else ():
            program.send_signal(how)
        self.wait()

    def wait(self) -> None:
        """Waits until it is gone."""
        self._nsenter.wait(30)


@contextlib.contextmanager
def nodes(folder: Path, *names: str) -> Iterator[dict[str, Node]]:
    """Nodes of these names, at 127.0.0.2 and so on, which end with all that runs on them.

    Args:
        folder: for what they share.
        names: theirs.
    """
    addresses = {name: f"127.0.0.{number}" for number, name in enumerate(names, start=2)}
    hosts = folder / "hosts"
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
    hosts.write_text("\n".join([*lines, f"127.0.0.1 {socket.gethostname()}", ""]))
    with contextlib.ExitStack() as stack:
        made = {}
        for name, address in addresses.items():
            made[name] = Node(name, address, hosts)
            stack.callback(made[name].kill)
        yield made


def need_nodes() -> None:
    """Skips a test where this machine does not allow nodes, and says why."""
    need_programs("unshare", "nsenter", package="util-linux")
    tried = subprocess.run(
        ["unshare", *_ENTER, "--fork", "--mount-proc", "sh", "-c", "hostname a && mount -t tmpfs tmpfs /dev/shm"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if tried.returncode:
        pytest.skip(f"a node needs root and namespaces, which this machine does not give: {tried.stdout.strip()}")


def need_programs(*names: str, package: str) -> None:
    """Skips a test where programs are missing, and says which Debian package has them."""
    missing = [name for name in names if shutil.which(name, path=_search_path()) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed: make test-cluster installs {package}, where it may")


def program(name: str) -> str:
    """The path of a program, also of one for administrators."""
    found = shutil.which(name, path=_search_path())
    assert found is not None, name
    return found


def _search_path() -> str:
    return os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])


_given: set[int] = set()  # ports: what asked for one may not listen on it yet when another one asks


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens now, and that nobody was given before."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            one = stack.enter_context(socket.socket())
            one.bind(("", 0))
            port = one.getsockname()[1]
            if port not in _given:
                found.append(port)
                _given.add(port)
    return found


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Waits until something is so.

    Raises:
        TimeoutError: it is not so in time.
    """
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:.0f} seconds it is not so that {what}")
        time.sleep(0.1)
