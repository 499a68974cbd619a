"""Ranks forked from processes that have imported what the script imports: the worker's side of `probe/warm.py`.

A rank that starts by itself spends seconds on imports, the same ones each time. dsopt learns what a script imports from
a run that it started directly. From then on it forks the ranks of a lane's runs, each from its own process, with the
number, addresses and string hashes of its rank.
"""

import itertools
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dsopt.launch.processes import kill_all
from dsopt.protocol.given import read_given_json
from dsopt.protocol.run_dir import ROOM_VARIABLE, RUN_VARIABLES, RunDir
from dsopt.study.launchers.launcher import RankStart

_ROOM_BYTES: Final = 16 * 1024  # what the variables of a rank may take beyond those it shares: paths, mostly
_IMPORTS_SECONDS = 300.0
_ANSWER_SECONDS = 30.0
_POLL_SECONDS = 0.2
_UNKNOWN_EXIT_CODE = 1


class ForkedStarts:
    """Forks the ranks of one lane's runs as long as it can; if it cannot, says why once.

    Args:
        stop_asked: whether someone asked the worker to stop, which ends a wait for imports.
        tell: gets the reason why ranks start directly from now on.
    """

    def __init__(self, stop_asked: Callable[[], bool], tell: Callable[[str], None]) -> None:
        self._stop_asked = stop_asked
        self._tell = tell
        self._modules: dict[str, str] | None = None
        self._servers: list[_Server] = []
        self._is_off = False
        self._latest: Path | None = None

    def learn(self, run_dir: RunDir) -> None:
        """Learns from a run that was started directly what its script imports."""
        if self._modules is not None or self._is_off or not run_dir.imports.exists():
            return
        try:
            imports = read_given_json(run_dir.imports)
            modules, changed = {str(name): str(file) for name, file in imports["modules"].items()}, imports["changed"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self.give_up("the script has changed what dsopt wrote about its imports")
            return
        if "torch" in modules:
            self._modules = modules
        elif changed:
            self.give_up(f"the script changes the environment variable {changed} before it imports torch")
        else:
            self.give_up("the script does not import torch from the installed packages")

    def fork(self, starts: Sequence[RankStart], cwd: Path, run_dir: RunDir) -> "list[ForkedRank] | None":
        """Forks the ranks; None if they must be started directly."""
        if self._modules is None or self._is_off:
            return None
        try:
            self._make_servers(starts, cwd)
            if not self._servers:
                return None
            ranks = [server.fork(start, run_dir) for server, start in zip(self._servers, starts, strict=True)]
        except (OSError, RefusedError) as error:
            self.give_up(str(error))
            kill_all(run_dir.path)  # some may have been forked
            return None
        self._latest = run_dir.path
        return ranks

    def has_forked(self, run_dir: RunDir) -> bool:
        """Whether the ranks of this run were forked."""
        return self._latest == run_dir.path

    def give_up(self, why: str) -> None:
        """From now on ranks are started directly."""
        self.close()
        if not self._is_off:
            self._is_off = True
            self._tell(why)

    def close(self) -> None:
        """Ends the processes; ranks that still run are left alone."""
        for server in self._servers:
            server.close()
        self._servers = []

    def _make_servers(self, starts: Sequence[RankStart], cwd: Path) -> None:
        """Starts a process for each rank, with everything that its runs share; none if asked to stop.

        What must not be imported beforehand, such as a package that begins with CUDA, is left to the ranks, and what
        comes after it. So is everything from the first part of a package that the script finishes only later.
        """
        assert self._modules is not None
        wanted = [_Origin.of(start, cwd) for start in starts]
        if [server.origin for server in self._servers] == wanted:
            return
        try:
            self._start_servers(wanted)
        except RefusedError as refused:
            early = imported_before(refused.since, self._modules)
            if "torch" not in early or len(early) == len(self._modules):
                raise
            self._modules = early
            self._start_servers(wanted)

    def _start_servers(self, wanted: "Sequence[_Origin]") -> None:
        assert self._modules is not None
        self.close()
        for origin in wanted:
            self._servers.append(_Server(origin, self._modules))
        if not all(server.has_imported(self._stop_asked) for server in self._servers):
            self.close()


def imported_before(name: str | None, modules: Mapping[str, str]) -> dict[str, str]:
    """The modules that were imported before the named one (None: all), up to the first whose package was not.

    To import a module imports its packages whole; what comes after it may depend on it.
    """
    order = list(modules)
    end = order.index(name) if name is not None and name in modules else len(order)
    late = set(order[end:])
    for place in reversed(range(end)):
        if not late.isdisjoint(_packages_of(order[place])):
            late.update(order[place:end])
            end = place
    return dict(itertools.islice(modules.items(), end))


def _packages_of(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


class RefusedError(Exception):
    """Why ranks cannot be forked.

    Args:
        why: the reason, as a clause.
        since: the module that must not be imported beforehand, nor what comes after it, if that helps.
    """

    def __init__(self, why: str, since: str | None = None) -> None:
        super().__init__(why)
        self.since = since


@dataclass(frozen=True, slots=True, kw_only=True)
class _Origin:
    """What a rank has in common with the same rank of other runs."""

    python: str
    cwd: Path
    environment: Mapping[str, str]

    @classmethod
    def of(cls, start: RankStart, cwd: Path) -> "_Origin":
        lasting = {key: value for key, value in start.environment.items() if key not in RUN_VARIABLES}
        return cls(python=start.argv[0], cwd=cwd, environment=lasting)


class _Server:
    """A process that forks one rank of each run, and the socket to it. It begins to import these modules at once."""

    def __init__(self, origin: _Origin, modules: Mapping[str, str]) -> None:
        self.origin = origin
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [origin.python, "-u", "-m", "dsopt.probe.warm", str(theirs.fileno())],
                cwd=origin.cwd,
                env={**origin.environment, ROOM_VARIABLE: " " * _ROOM_BYTES},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what imports say is in the log of the run that was started directly
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._answers = self._socket.makefile("r", encoding="utf-8")
        self._request({"import": modules})

    def has_imported(self, stop_asked: Callable[[], bool]) -> bool:
        """Waits until the process has imported the modules; returns False if asked to stop.

        Raises:
            RefusedError: it cannot import them, or cannot be forked after that.
        """
        deadline = time.monotonic() + _IMPORTS_SECONDS
        while not _is_readable(self._socket.fileno(), _POLL_SECONDS):
            if stop_asked():
                return False
            if time.monotonic() > deadline:
                raise RefusedError(f"imports took more than {_IMPORTS_SECONDS:g} s")
        self._check(self._answer())
        return True

    def fork(self, start: RankStart, run_dir: RunDir) -> "ForkedRank":
        """Forks the rank in its own session, and appends its output to the run's logs."""
        described = {
            "argv": list(start.argv),
            "environment": dict(start.environment),
            "cwd": str(self.origin.cwd),
            "stdout": str(run_dir.stdout),
            "stderr": str(run_dir.stderr),
        }
        self._request({"fork": described})
        answer = self._answer()
        self._check(answer)
        return ForkedRank(self, answer["pid"])

    def exit_code(self, pid: int) -> int:
        """The exit code of a rank that has ended, negative for a signal."""
        try:
            self._request({"wait": pid})
            return int(self._answer()["exit_code"])
        except (OSError, RefusedError):
            return _UNKNOWN_EXIT_CODE

    def close(self) -> None:
        """Ends the process at once."""
        self._answers.close()
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def _request(self, request: Mapping[str, Any]) -> None:
        self._socket.sendall(json.dumps(request).encode() + b"\n")

    def _answer(self) -> dict[str, Any]:
        if not _is_readable(self._socket.fileno(), _ANSWER_SECONDS):
            raise RefusedError("the process that forks them does not answer")
        line = self._answers.readline()
        if not line:
            raise RefusedError("the process that forks them has died")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _check(self, answer: Mapping[str, Any]) -> None:
        if answer["refusal"] is not None:
            raise RefusedError(answer["refusal"], answer.get("since"))


class ForkedRank:
    """A forked rank, with the part of `subprocess.Popen` that a launch needs.

    The process that forked it reaps it only when asked here, so nothing else gets its pid before.
    """

    def __init__(self, server: _Server, pid: int) -> None:
        self.pid = pid
        self._server = server
        self._ending = os.pidfd_open(pid)
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._exit_code if self._has_ended(0.0) else None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end, in seconds.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        assert self._exit_code is not None
        return self._exit_code

    def _has_ended(self, timeout: float | None) -> bool:
        if self._exit_code is None and _is_readable(self._ending, timeout):
            os.close(self._ending)
            self._exit_code = self._server.exit_code(self.pid)
        return self._exit_code is not None


def _is_readable(descriptor: int, timeout: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout is None else timeout * 1000))
