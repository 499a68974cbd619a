"""DeepSpeed's own launcher: deepspeed/launcher/runner.py and launch.py, 0.19."""

import re
from pathlib import Path
from typing import Final

from dsopt.study.launchers.launcher import PROBE_WORDS, Launcher, NodeStart, Options, RankStart

_FILTER = re.compile(r"[\w.-]+(:\d+(-\d+)?(,\d+(-\d+)?)*)?(@[\w.-]+(:\d+(-\d+)?(,\d+(-\d+)?)*)?)*", re.ASCII)
# options that change nothing about a start on one node, or that are said again in other words
_UNDERSTOOD: Final = frozenset(
    """
    --num_gpus --num_accelerators --num_nodes --include -i --master_port --master_addr --module --no_local_rank
    --no_ssh_check -q --quiet --log_level
    """.split()
)
_LAUNCHER_MODULE: Final = "deepspeed.launcher.runner"


class _DeepSpeed(Launcher):
    def mistake(self, options: Options) -> str | None:
        """What the launcher would refuse of `--include` and `--exclude`."""
        filters = {names[0]: options.value(*names) for names in (self.include, self.exclude)}
        for name, value in filters.items():
            if value is not None and not _FILTER.fullmatch(value):
                return f"{name} {value}. Expected nodes and devices such as localhost:0,2."
        given = [name for name, value in filters.items() if value is not None]
        if len(given) == 2:
            return "--include and --exclude exclude each other. Keep one of them."
        if given and options.value(*self.ranks, *self.nodes) is not None:
            return f"{given[0]} cannot be combined with --num_gpus or --num_nodes. Keep one of them."
        return None

    def direct_ranks(self, start: NodeStart) -> list[RankStart] | None:
        """The ranks with the environment and arguments that the launcher would give them; a test compares them.

        Most of a short run is launchers and imports: two launcher processes import torch, one after the other, before
        the first rank starts.
        """
        python = _interpreter_of(start.program)
        if python is None or not set(start.options.names) <= _UNDERSTOOD:
            return None
        return _ranks(start, python)

    def can_be_spread(self, options: Options, program: Path | None = None) -> bool:
        """Whether it would start ranks by ssh alone, with nothing but arguments and environment."""
        understood = _UNDERSTOOD | {*self.hostfile, *self.exclude, "--force_multi", "--launcher", "--ssh_port"}
        is_known = set(options.names) <= understood and options.value("--launcher") in (None, "pdsh")
        return is_known and (program is None or _interpreter_of(program) is not None)

    def node_ranks(self, start: NodeStart) -> list[RankStart]:
        """The ranks of a node, as `deepspeed.launcher.launch` starts them there; a test compares them."""
        python = _interpreter_of(start.program)
        assert python is not None, "asked for what cannot be spread"
        return _ranks(start, python)


def _ranks(start: NodeStart, python: str) -> list[RankStart]:
    """The ranks of one node."""
    counts = start.counts or (len(start.devices),)
    first = sum(counts[: start.node])
    common = {
        **start.environment,
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, start.devices)),
        "MASTER_ADDR": start.address,
        "MASTER_PORT": str(start.port),
        "WORLD_SIZE": str(sum(counts)),
        # where DeepSpeed is imported it sets this, in the launcher first
        "PYTORCH_NVML_BASED_CUDA_CHECK": start.environment.get("PYTORCH_NVML_BASED_CUDA_CHECK", "1"),
        "CROSS_RANK": str(start.node),
        "CROSS_SIZE": str(len(counts)),
        "LOCAL_SIZE": str(len(start.devices)),
    }
    named = "--no_local_rank" not in start.options.names
    return [
        RankStart(
            argv=(
                *(python, *PROBE_WORDS),
                *([f"--local_rank={(first + rank) % len(start.devices)}"] if named else []),
                *start.script_args,
            ),
            # on nodes with unlike numbers of ranks, this is not the rank's number on its node: so it is there, too
            environment={**common, "RANK": str(first + rank), "LOCAL_RANK": str((first + rank) % len(start.devices))},
        )
        for rank in range(len(start.devices))
    ]


DEEPSPEED: Final = _DeepSpeed(
    name="deepspeed",
    programs=(("deepspeed",), ("ds",)),
    modules=(("deepspeed.launcher.runner",),),
    flags=frozenset(
        """
        --module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid --elastic_training
        --bind_cores_to_rank -q --quiet
        """.split()
    ),
    valued=frozenset(
        """
        -H --hostfile -i --include -e --exclude --num_nodes --num_gpus --num_accelerators --min_elastic_nodes
        --max_elastic_nodes --master_port --master_addr --node_rank --launcher --launcher_args --enable_each_rank_log
        --autotuning --bind_core_list --ssh_port --venv_script --log_level
        """.split()
    ),
    is_open=False,
    takes_prefixes=True,
    takes_hyphens=False,
    module=("--module",),
    ranks=("--num_gpus", "--num_accelerators"),
    nodes=("--num_nodes",),
    port="--master_port",
    address="--master_addr",
    devices=("--include", "-i", "--exclude", "-e"),
    include=("--include", "-i"),
    exclude=("--exclude", "-e"),
    hides_visible=True,
    hostfile=("--hostfile", "-H"),
)


def _interpreter_of(program: Path) -> str | None:
    """The Python that DeepSpeed's own launcher runs with; None if the program is something else."""
    try:
        first, _, rest = program.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    python = first.removeprefix("#!").strip()
    is_launcher = first.startswith("#!") and _LAUNCHER_MODULE in rest and " " not in python
    return python if is_launcher and Path(python).name.startswith("python") else None
