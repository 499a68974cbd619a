"""Starts the ranks of `torchrun` and `accelerate launch` on this node directly, as the launcher was seen to start them.

What these launchers give their ranks depends on their version, on dozens of options and on configuration files of their
own. So the first run of a command is started by the launcher, and arguments and environment of its ranks are read from
the system. A later run of the same command differs in port, run directory and what the script is given.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import psutil

from dsopt.experiment.direct import PROBE_WORDS, RankStart
from dsopt.experiment.processes import processes_of
from dsopt.experiment.rundir import PROTOCOL_VARIABLES, RunDir
from dsopt.study.command import LaunchCommand

# options that say only what arguments and environment ranks get; others change what the launcher does beside them
_UNDERSTOOD: Final = {
    "torchrun": frozenset(
        """
        --nproc_per_node --nnodes --node_rank --master_addr --master_port -m --module --max_restarts --monitor_interval
        --role --use_env --virtual_local_rank
        """.split()
    ),
    "accelerate": frozenset(
        """
        --num_processes --num_machines --machine_rank --main_process_ip --main_process_port -m --module -q --quiet
        --config_file --cpu --multi_gpu --mixed_precision --num_cpu_threads_per_process --same_network --max_restarts
        --monitor_interval --role --use_deepspeed --deepspeed_config_file --zero_stage --offload_optimizer_device
        --offload_param_device --offload_optimizer_nvme_path --offload_param_nvme_path --gradient_accumulation_steps
        --gradient_clipping --zero3_init_flag --zero3_save_16bit_model --deepspeed_moe_layer_cls_names
        --dynamo_backend --dynamo_mode --dynamo_use_fullgraph --dynamo_use_dynamic --dynamo_use_regional_compilation
        """.split()
    ),
}
_STORE: Final = "TORCHELASTIC_USE_AGENT_STORE"
_ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"
_TIMER_FILE: Final = "TORCHELASTIC_TIMER_FILE"  # a watchdog of the launcher reads it
_LOCAL_RANK: Final = ("--local_rank=", "--local-rank=")
# stand for what is a run's own
_PORT: Final = "{port of the run}"
_RUN_DIR: Final = "{run directory}"

_Key: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """What one run hands to a launcher: command (probe included), environment, and what in them is its own."""

    command: LaunchCommand
    environment: Mapping[str, str]
    port: int
    run_dir: RunDir

    def generalised(self, text: str) -> str:
        """The text with the run's own port (where it is nothing else) and run directory marked."""
        return _PORT if text == str(self.port) else text.replace(str(self.run_dir.path), _RUN_DIR)

    def own(self, text: str) -> str:
        """The text with the marks replaced by the run's port and run directory."""
        return text.replace(_PORT, str(self.port)).replace(_RUN_DIR, str(self.run_dir.path))

    @property
    def key(self) -> _Key:
        """What two runs must share for a launcher to start their ranks alike."""
        words = tuple(map(self.generalised, (*self.command.program, *self.command.launcher_args)))
        shared = {key: value for key, value in self.environment.items() if key not in PROTOCOL_VARIABLES}
        return words, tuple(sorted(shared.items()))


class LearnedStarts:
    """How launchers were seen to start ranks; one for the runs of a lane."""

    def __init__(self) -> None:
        self._known: dict[_Key, list[RankStart]] = {}

    def learn(self, run: RunStart) -> None:
        """Looks at the ranks of a run that a launcher has started and that are all there."""
        if run.key in self._known or not is_understood(run.command):
            return
        starts = [general for start in _seen_ranks(run.run_dir) if (general := _generalised(start, run)) is not None]
        here = str(len(starts))
        worlds = {(start.environment.get("WORLD_SIZE"), start.environment.get("LOCAL_WORLD_SIZE")) for start in starts}
        if worlds == {(here, here)} and not any(_TIMER_FILE in start.environment for start in starts):
            self._known[run.key] = starts

    def starts(self, run: RunStart) -> list[RankStart] | None:
        """What the launcher would start, or None where that is left to itself.

        Two variables differ: the store that ranks meet at is not the launcher's but rank 0's, and the file for what a
        rank raises lies in the run directory.
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
    """Whether all that the launcher does for its ranks on this node is to give them arguments and environment."""
    understood = _UNDERSTOOD.get(command.launcher.kind, frozenset())
    return command.option(*command.launcher.nodes) in (None, "1") and set(command.launcher_option_names) <= understood


def _seen_ranks(run_dir: RunDir) -> list[RankStart]:
    """The ranks of a run in order, as the system shows that they were started."""
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
    # what a rank has forked looks like the rank
    ranks = [start for pid, start in found.items() if parents[pid] not in found]
    return sorted(ranks, key=lambda start: int(start.environment["RANK"]))


def _generalised(start: RankStart, run: RunStart) -> RankStart | None:
    """A seen start without what is the run's own; None where the script was not given the words of the command."""
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
