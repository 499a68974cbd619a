"""Starts the ranks of a `deepspeed` command on this node directly, as its launcher would have started them.

Most of a short run is launchers and imports: two launcher processes import torch, one after the other, before the first
rank starts. Environment and arguments are those of `deepspeed/launcher/runner.py` and `launch.py`, 0.19; a test
compares them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dsopt.study.command import LaunchCommand

# options that change nothing about a start on one node, or that are said again in other words
_UNDERSTOOD: Final = frozenset(
    """
    --num_gpus --num_accelerators --num_nodes --include -i --master_port --master_addr --module --no_local_rank
    --no_ssh_check -q --quiet --log_level
    """.split()
)
PROBE_WORDS: Final = ("-u", "-m", "dsopt.probe")  # what launchers put between Python and the script
_LAUNCHER_MODULE: Final = "deepspeed.launcher.runner"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStart:
    """One rank: its argument list and its environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def rank_starts(
    program: Path, command: LaunchCommand, environment: Mapping[str, str], *, devices: tuple[int, ...], port: int
) -> list[RankStart] | None:
    """What the launcher would start, or None where that is left to itself.

    Args:
        program: the launcher program.
        command: the command as it would be launched, probe included (`LaunchCommand.with_module`).
        environment: the launcher's.
        devices: indices of the node's devices, one a rank.
        port: port that the ranks meet at.
    """
    python = _interpreter_of(program)
    if python is None or command.uses_hostfile or command.launcher.kind != "deepspeed":
        return None
    if not set(command.launcher_option_names) <= _UNDERSTOOD:
        return None
    common = {
        **environment,
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, devices)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(len(devices)),
        # where DeepSpeed is imported it sets this, in the launcher first
        "PYTORCH_NVML_BASED_CUDA_CHECK": environment.get("PYTORCH_NVML_BASED_CUDA_CHECK", "1"),
        "CROSS_RANK": "0",
        "CROSS_SIZE": "1",
        "LOCAL_SIZE": str(len(devices)),
    }
    named = not command.has_launcher_flag("--no_local_rank")
    return [
        RankStart(
            argv=(
                python,
                *PROBE_WORDS,
                *([f"--local_rank={rank}"] if named else []),
                *command.script_args,
            ),
            environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(len(devices))
    ]


def _interpreter_of(program: Path) -> str | None:
    """The Python that DeepSpeed's own launcher runs with; None where the program is something else."""
    try:
        first, _, rest = program.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    python = first.removeprefix("#!").strip()
    is_launcher = first.startswith("#!") and _LAUNCHER_MODULE in rest and " " not in python
    return python if is_launcher and Path(python).name.startswith("python") else None
