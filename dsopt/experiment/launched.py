"""A launched attempt: what is started for it, the launcher or its ranks, and how all of that is ended."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dsopt.errors import DsoptError
from dsopt.experiment.direct import RankStart, rank_starts
from dsopt.experiment.events import EventReader
from dsopt.experiment.launch import Launch, find_launcher
from dsopt.experiment.learned import RunStart
from dsopt.experiment.leftovers import remove_shared_memory
from dsopt.experiment.processes import kill_all
from dsopt.experiment.rundir import MEMORY_LIMIT_VARIABLE, RUN_DIR_VARIABLE
from dsopt.experiment.shared import Lead
from dsopt.experiment.swap import remove_swap
from dsopt.experiment.warm import ForkedRank

_NODES_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Starts:
    """The launcher, or in its place the ranks that it would start.

    Attributes:
        processes: what is started.
        are_ranks: whether these are the ranks.
        given: what the launcher is given, where it is started.
    """

    processes: Sequence[RankStart]
    are_ranks: bool = False
    given: RunStart | None = None


def _starts(launch: Launch) -> _Starts:
    program = find_launcher(launch.command.program[0], launch.cwd)
    command = launch.probed_command()
    environment = launch.environment(os.environ)
    # compilers of extensions look for `ninja` on PATH, where the launcher's own environment keeps it
    environment["PATH"] = f"{program.parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    launch.run_dir.command.write_text(f"cd {shlex.quote(str(launch.cwd))} && {command}\n", encoding="utf-8")
    if launch.is_direct:
        # on the CPU, slots are only counted
        indices = launch.devices.indices
        devices = indices if launch.devices.kind == "gpu" else tuple(range(len(indices)))
        starts = rank_starts(program, command, environment, devices=devices, port=launch.port)
        if starts is not None:
            return _Starts(processes=starts, are_ranks=True)
    given = RunStart(command=command, environment=environment, port=launch.port, run_dir=launch.run_dir)
    starts = launch.learned.starts(given) if launch.learned else None
    if starts is not None:
        return _Starts(processes=starts, are_ranks=True)
    launcher = RankStart(argv=(str(program), *command.argv()[1:]), environment=environment)
    return _Starts(processes=[launcher], given=given)


def _simulated_starts(launch: Launch) -> _Starts:
    """The one process that stands for all of a dry run."""
    protocol = {RUN_DIR_VARIABLE: str(launch.run_dir.path)}
    if launch.memory_limit_bytes:
        protocol[MEMORY_LIMIT_VARIABLE] = str(launch.memory_limit_bytes)
    argv = (sys.executable, "-m", "dsopt.simulated")
    typed = " ".join([*(f"{key}={shlex.quote(value)}" for key, value in protocol.items()), shlex.join(argv)])
    launch.run_dir.command.write_text(f"{typed}\n", encoding="utf-8")
    return _Starts(processes=[RankStart(argv=argv, environment={**os.environ, **protocol})])


class Process:
    """A launched attempt, from the launcher down to its ranks."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        starts = _simulated_starts(launch) if launch.is_simulated else _starts(launch)
        self._given = starts.given
        self._lead: Lead | None = None
        forked = self._forked(starts)
        self._started: Sequence[subprocess.Popen[bytes] | ForkedRank] = forked or [
            _start(process, launch) for process in starts.processes
        ]
        self._is_parked = False

    def _forked(self, starts: _Starts) -> Sequence[ForkedRank] | None:
        """The ranks, where they need not be started: parked ones, or forked ones. Parked ones of other runs end."""
        launch, setting = self._launch, self._launch.setting if starts.are_ranks else None
        ranks = launch.shared.take(setting, starts.processes, launch.cwd, launch.run_dir) if launch.shared else None
        stay = launch.shared is not None and launch.shared.is_on and setting is not None
        if ranks is None and starts.are_ranks and launch.warm is not None:
            ranks = launch.warm.fork(starts.processes, launch.cwd, launch.run_dir, stay=stay)
        self._lead = Lead(ranks) if ranks is not None and stay else None
        return ranks

    def exit_code(self) -> int | None:
        """The launcher's exit code, or that of a rank that failed; None while it runs, negative for a signal."""
        codes = [process.poll() for process in self._started]
        failed = next((code for code in codes if code), None)
        return failed if failed is not None else None if None in codes else 0

    def learn(self) -> None:
        """Looks how ranks that run were started by the launcher, so that later ones can be without it."""
        if self._launch.learned and self._given:
            self._launch.learned.learn(self._given)

    def lead(self, steps: int, step_seconds: float) -> None:
        """To be called when so many steps have been done, the last one in this time: ranks that stay train on."""
        if self._lead is not None:
            self._lead.extend(steps, step_seconds)

    def park(self, steps: int, step_seconds: float, reader: EventReader) -> None:
        """Lets the ranks of a run that was measured leave the script and wait for the next one, where they stay."""
        shared, setting = self._launch.shared, self._launch.setting
        if self._lead is None or shared is None or setting is None:
            return
        within = self._lead.end(steps, step_seconds)
        if within is not None:
            self._is_parked = shared.park(setting, self._lead.ranks, within, reader)

    def kill(self) -> None:
        """Ends every process of the run at once, unless they are parked, and removes what they left behind.

        For runs whose result is already on disk: nothing is asked of their ranks any more. Ranks on other nodes can
        only be ended by the launcher that started them, so that one is asked first.
        """
        if self._is_parked:
            self._remove_files()
            return
        if self._launch.command.uses_hostfile:
            self._ask_to_end(_NODES_PATIENCE_SECONDS)
        self._signal(signal.SIGKILL)
        for process in self._started:
            process.wait()
        self._clean_up()

    def terminate(self, *, patience_seconds: float = 5.0) -> None:
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

    def _clean_up(self) -> None:
        if not kill_all(self._launch.run_dir.path):
            raise DsoptError(
                f"{self._launch.run_dir.path}: some of its processes could not be ended (stuck in the kernel?). "
                "End them by hand, then start the worker again."
            )
        self._remove_files()

    def _remove_files(self) -> None:
        remove_shared_memory(self._launch.port)  # ranks that are parked have mapped theirs
        remove_swap(self._launch.run_dir.path)


def _start(start: RankStart, launch: Launch) -> subprocess.Popen[bytes]:
    with launch.run_dir.stdout.open("ab") as stdout, launch.run_dir.stderr.open("ab") as stderr:
        return subprocess.Popen(
            start.argv,
            cwd=launch.cwd,
            env=start.environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
