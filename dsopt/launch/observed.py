"""Starts the ranks of a launcher such as `torchrun` on this node directly, as it has seen the launcher start them.

What these launchers give their ranks depends on their version, on dozens of options and on their own configuration
files. So the launcher starts the first run of a command, and dsopt reads the arguments and environment of its ranks
from the system. A later run of the same command differs in port, run directory and the script's arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import psutil

from dsopt.launch.processes import processes_of
from dsopt.protocol.run_dir import PROTOCOL_VARIABLES, RunDir
from dsopt.study.command import LaunchCommand
from dsopt.study.launchers.launcher import PROBE_WORDS, RankStart

_STORE: Final = "TORCHELASTIC_USE_AGENT_STORE"
_ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"
_TIMER_FILE: Final = "TORCHELASTIC_TIMER_FILE"  # a watchdog of the launcher reads it
_LOCAL_RANK: Final = ("--local_rank=", "--local-rank=")
# placeholders for what differs between runs
_PORT: Final = "{port of the run}"
_RUN_DIR: Final = "{run directory}"

_Key: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """What one run gives a launcher: command (with the probe), environment, and the parts of them that are its own."""

    command: LaunchCommand
    environment: Mapping[str, str]
    port: int
    run_dir: RunDir

    def generalised(self, text: str) -> str:
        """The text with placeholders for the run's port (if it is the whole text) and run directory."""
        return _PORT if text == str(self.port) else text.replace(str(self.run_dir.path), _RUN_DIR)

    def own(self, text: str) -> str:
        """The text with the run's port and run directory instead of the placeholders."""
        return text.replace(_PORT, str(self.port)).replace(_RUN_DIR, str(self.run_dir.path))

    @property
    def key(self) -> _Key:
        """What two runs must have in common for a launcher to start their ranks alike."""
        words = tuple(map(self.generalised, (*self.command.program, *self.command.launcher_args)))
        environment = self.environment.items()
        shared = {key: self.generalised(value) for key, value in environment if key not in PROTOCOL_VARIABLES}
        return words, tuple(sorted(shared.items()))


class ObservedStarts:
    """Remembers how launchers start ranks; one for the runs of a lane."""

    def __init__(self) -> None:
        self._known: dict[_Key, list[RankStart]] = {}

    def observe(self, run: RunStart) -> None:
        """Reads the ranks of a run that a launcher has started; all of them must be running."""
        if run.key in self._known or not is_understood(run.command):
            return
        starts = [general for start in _seen_ranks(run.run_dir) if (general := _generalised(start, run)) is not None]
        here = str(len(starts))
        worlds = {(start.environment.get("WORLD_SIZE"), start.environment.get("LOCAL_WORLD_SIZE")) for start in starts}
        if worlds == {(here, here)} and not any(_TIMER_FILE in start.environment for start in starts):
            self._known[run.key] = starts

    def starts(self, run: RunStart) -> list[RankStart] | None:
        """What the launcher would start, or None if the launcher must start it.

        Two variables differ: ranks meet at rank 0's store instead of the launcher's, and the file for a rank's
        exception is in the run directory.
        """
        protocol = {key: value for key, value in run.environment.items() if key in PROTOCOL_VARIABLES}
        known = self._known.get(run.key)
        if known is None:
            return None
        return [
            RankStart(
                argv=(*start.argv, *run.command.script_args),
                environment={key: run.own(value) for key, value in start.environment.items()} | protocol,
            )
            for start in known
        ]


def is_understood(command: LaunchCommand) -> bool:
    """Whether the launcher only gives its ranks on this node arguments and environment."""
    observable = command.launcher.observable
    is_here = command.option(*command.launcher.nodes) in (None, "1")
    return is_here and bool(observable) and set(command.options.names) <= observable


def _seen_ranks(run_dir: RunDir) -> list[RankStart]:
    """The ranks of a run in order, with the arguments and environment that the system shows."""
    found: dict[int, RankStart] = {}
    parents: dict[int, int] = {}
    for process in processes_of(run_dir.path):
        try:
            argv, environment, parent = process.cmdline(), process.environ(), process.ppid()
        except psutil.Error:
            continue
        parents[process.pid] = parent
        if tuple(argv[1:4]) == PROBE_WORDS and "RANK" in environment:
            found[process.pid] = RankStart(argv=tuple(argv), environment=environment)
    # a process that a rank has forked looks like the rank
    ranks = [start for pid, start in found.items() if parents[pid] not in found]
    return sorted(ranks, key=lambda start: int(start.environment["RANK"]))


def _generalised(start: RankStart, run: RunStart) -> RankStart | None:
    """A start with placeholders; None if the script's arguments are not those of the command."""
    words = start.argv[4:]
    local_rank = words[:1] if words and words[0].startswith(_LOCAL_RANK) else ()
    if words[len(local_rank) :] != run.command.script_args:
        return None
    environment = {
        key: run.generalised(value) for key, value in start.environment.items() if key not in PROTOCOL_VARIABLES
    }
    if _STORE in environment:
        environment[_STORE] = "False"
    if _ERROR_FILE in environment:  # in a temporary folder of the launcher
        environment[_ERROR_FILE] = f"{_RUN_DIR}/error-rank{start.environment['RANK']}.json"
    return RankStart(argv=(*start.argv[:4], *local_rank), environment=environment)
