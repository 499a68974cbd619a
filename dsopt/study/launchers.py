"""The launchers people train with: how each is called, and what its options are named."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Kind = Literal["deepspeed", "torchrun", "accelerate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """One launcher program.

    Attributes:
        kind: which it is.
        flags: options without a value.
        valued: options with a value; None where every option that is no flag takes one.
        module: options that say that the script is a module.
        ranks: options that give the number of ranks, on each node for `deepspeed` and `torchrun`.
        nodes: options that give the number of nodes.
        port: option that gives the port ranks meet at.
        rendezvous: options that would contradict a port of our own, removed with it.
        devices: options that choose among a node's devices.
        config: option that names DeepSpeed's configuration, where the launcher itself has one.
    """

    kind: Kind
    flags: frozenset[str]
    valued: frozenset[str] | None
    module: tuple[str, ...]
    ranks: tuple[str, ...]
    nodes: tuple[str, ...]
    port: str
    rendezvous: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    config: str | None = None

    def name_of(self, word: str) -> str:
        """An option's name as it is listed here: torchrun and accelerate take `--nproc-per-node`, too."""
        if self.kind == "deepspeed" or not word.startswith("--"):
            return word
        return "--" + word[2:].replace("-", "_")

    def takes_value(self, name: str) -> bool:
        """Whether the word after this option is its value."""
        return name not in self.flags and (self.valued is None or name in self.valued)

    def knows(self, name: str) -> bool:
        """Whether this is an option of the launcher at all, as far as that can be told."""
        return name in self.flags or self.valued is None or name in self.valued


# deepspeed/launcher/runner.py, 0.19
DEEPSPEED: Final = Launcher(
    kind="deepspeed",
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
    module=("--module",),
    ranks=("--num_gpus", "--num_accelerators"),
    nodes=("--num_nodes",),
    port="--master_port",
    devices=("--include", "-i", "--exclude", "-e"),
)

# torch/distributed/run.py, 2.13
TORCHRUN: Final = Launcher(
    kind="torchrun",
    flags=frozenset("--standalone -m --module --no_python --run_path --virtual_local_rank --use_env".split()),
    valued=None,
    module=("-m", "--module"),
    ranks=("--nproc_per_node",),
    nodes=("--nnodes",),
    port="--master_port",
    rendezvous=("--standalone", "--rdzv_backend", "--rdzv_endpoint", "--rdzv_id", "--rdzv_conf"),
)

# accelerate/commands/launch.py, 1.15
ACCELERATE: Final = Launcher(
    kind="accelerate",
    flags=frozenset(
        """
        -q --quiet -m --module --no_python --debug --cpu --multi_gpu --tpu --enable_cpu_affinity --dynamo_use_fullgraph
        --dynamo_use_dynamic --dynamo_use_regional_compilation --use_deepspeed --use_fsdp --use_parallelism_config
        --use_megatron_lm --same_network --tpu_cluster --no_tpu_cluster --tpu_use_sudo --downcast_bf16
        --fp8_use_autocast_during_eval
        """.split()
    ),
    valued=None,
    module=("-m", "--module"),
    ranks=("--num_processes",),
    nodes=("--num_machines",),
    port="--main_process_port",
    rendezvous=("--rdzv_backend", "--rdzv_conf"),
    devices=("--gpu_ids",),
    config="--deepspeed_config_file",
)

_TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")


def recognize(words: Sequence[str]) -> tuple[Launcher, int] | None:
    """The launcher that a command begins with and how many words name it, or None."""
    if not words:
        return None
    program = Path(words[0]).name
    if program in ("deepspeed", "ds"):
        return DEEPSPEED, 1
    if program == "torchrun":
        return TORCHRUN, 1
    if program == "accelerate" and list(words[1:2]) == ["launch"]:
        return ACCELERATE, 2
    if program.startswith("python") and "-m" in words[1:4]:
        at = list(words).index("-m")
        interpreter_flags = all(word.startswith("-") for word in words[1:at])
        module = words[at + 1] if interpreter_flags and at + 1 < len(words) else ""
        if module in _TORCH_MODULES:
            return TORCHRUN, at + 2
        if module == "deepspeed.launcher.runner":
            return DEEPSPEED, at + 2
        if module in ("accelerate.commands.launch", "accelerate.commands.accelerate_cli launch"):
            return ACCELERATE, at + 2
    return None
