"""A launched attempt: starts the launcher or its ranks, and ends all of their processes."""

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from dsopt.errors import DsoptError
from dsopt.launch.forked import ForkedRank, ForkedStarts
from dsopt.launch.launch import Launch
from dsopt.launch.leftovers import remove_shared_memory
from dsopt.launch.observed import ObservedStarts, RunStart
from dsopt.launch.processes import NODES_PATIENCE_SECONDS, kill_all, processes_of
from dsopt.launch.program import find_launcher, path_with
from dsopt.launch.swap import remove_swap
from dsopt.protocol.presence import be_present
from dsopt.protocol.private import append_private, write_private
from dsopt.protocol.run_dir import MEMORY_LIMIT_VARIABLE, RUN_DIR_VARIABLE
from dsopt.study.command_secrets import shown, with_values
from dsopt.study.launchers.launcher import NodeStart, RankStart
from dsopt.study.own_programs import own_environment, own_program


@dataclass(frozen=True, slots=True, kw_only=True)
class _Starts:
    """The launcher, or instead the ranks that it would start.

    Attributes:
        processes: what to start.
        are_ranks: whether these are the ranks.
        given: what the launcher gets, if it is started.
    """

    processes: Sequence[RankStart]
    are_ranks: bool = False
    given: RunStart | None = None


def _starts(launch: Launch, observed: ObservedStarts | None) -> _Starts:
    program = find_launcher(launch.command.program[0], launch.cwd)
    command = launch.probed_command()
    environment = launch.environment(os.environ)
    environment["PATH"] = path_with(environment, program)
    write_private(launch.run_dir.command, f"cd {shlex.quote(str(launch.cwd))} && {shown(command)}\n")
    command = with_values(command, os.environ)
    if launch.start != "launcher" and not command.uses_hostfile:
        # on the CPU, only the number of slots matters
        indices = launch.devices.indices
        devices = indices if launch.devices.kind == "gpu" else tuple(range(len(indices)))
        node = NodeStart(
            program=program,
            options=command.options,
            script_args=command.script_args,
            environment=environment,
            devices=devices,
            port=launch.port,
        )
        ranks = command.launcher.direct_ranks(node)
        if ranks is not None:
            return _Starts(processes=ranks, are_ranks=True)
    given = RunStart(command=command, environment=environment, port=launch.port, run_dir=launch.run_dir)
    ranks = observed.starts(given) if observed is not None else None
    if ranks is not None:
        return _Starts(processes=ranks, are_ranks=True)
    launcher = RankStart(argv=(str(program), *command.argv()[1:]), environment=environment)
    return _Starts(processes=[launcher], given=given)


def _simulated_starts(launch: Launch) -> _Starts:
    """The one process of a dry run."""
    protocol = {RUN_DIR_VARIABLE: str(launch.run_dir.path)}
    if launch.memory_limit_bytes:
        protocol[MEMORY_LIMIT_VARIABLE] = str(launch.memory_limit_bytes)
    argv = own_program("dsopt.simulated")
    typed = " ".join([*(f"{key}={shlex.quote(value)}" for key, value in protocol.items()), shlex.join(argv)])
    write_private(launch.run_dir.command, f"{typed}\n")
    return _Starts(processes=[RankStart(argv=argv, environment={**own_environment(), **protocol})])


class Process:
    """A launched attempt, from the launcher down to its ranks.

    Args:
        launch: what to start.
        observed: knows how launchers start ranks, and learns how this one does; None: always use the launcher.
        forked: forks ranks that need no launcher, if it can; None: start them directly.
    """

    def __init__(
        self, launch: Launch, observed: ObservedStarts | None = None, forked: ForkedStarts | None = None
    ) -> None:
        self._launch = launch
        self._observed = observed
        starts = _simulated_starts(launch) if launch.is_simulated else _starts(launch, observed)
        self._given = starts.given
        ranks = None
        if forked is not None and starts.are_ranks:
            ranks = forked.fork(starts.processes, launch.cwd, launch.run_dir)
        self._started: Sequence[subprocess.Popen[bytes] | ForkedRank] = ranks or [
            _start(process, launch) for process in starts.processes
        ]

    def exit_code(self) -> int | None:
        """The launcher's exit code, or that of a rank that failed; None while it runs, negative for a signal."""
        codes = [process.poll() for process in self._started]
        failed = next((code for code in codes if code), None)
        return failed if failed is not None else None if None in codes else 0

    def observe(self) -> None:
        """Learns from the running ranks how the launcher started them, so that later runs need no launcher."""
        if self._observed is not None and self._given is not None:
            self._observed.observe(self._given)

    def kill(self) -> None:
        """Ends every process of the run at once, and removes what they left behind.

        For runs whose result is already on disk, so that nobody needs their ranks any more. Only the launcher that
        started them can end ranks on other nodes, so this asks it first.
        """
        if self._launch.command.uses_hostfile:
            self._ask_to_end(NODES_PATIENCE_SECONDS)
        ranks = processes_of(self._launch.run_dir.path)  # while the launcher lives, it shows which are its own
        self._signal(signal.SIGKILL)
        for process in self._started:
            process.wait()
        self._clean_up(ranks)

    def terminate(self, *, patience_seconds: float = 1.0) -> None:
        """Asks the launcher to end its ranks, then ends what is left."""
        self._ask_to_end(patience_seconds)
        self.kill()

    def _ask_to_end(self, patience_seconds: float) -> None:
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + patience_seconds
        for process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, deadline - time.monotonic()))

    def _signal(self, number: signal.Signals) -> None:
        for process in self._started:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def _clean_up(self, ranks: Sequence[psutil.Process]) -> None:
        if not kill_all(self._launch.run_dir.path, also=ranks):
            raise DsoptError(
                f"{self._launch.run_dir.path}: cannot end some of its processes (stuck in the kernel?). "
                "End them by hand, then start the worker again."
            )
        remove_shared_memory(self._launch.port)
        remove_swap(self._launch.run_dir.path)
        self._launch.run_dir.remove_node_environment()


def _start(start: RankStart, launch: Launch) -> subprocess.Popen[bytes]:
    with append_private(launch.run_dir.stdout) as stdout, append_private(launch.run_dir.stderr) as stderr:
        be_present(stdout.fileno())
        return subprocess.Popen(
            start.argv,
            cwd=launch.cwd,
            env=start.environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
