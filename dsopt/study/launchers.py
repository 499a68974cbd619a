"""The launchers people train with: how each is called, and what its options are named."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dsopt.errors import DsoptError
from dsopt.study.documents import nearest

Kind = Literal["deepspeed", "torchrun", "accelerate"]
_ALMOST: Final = 0.9  # of an option that other versions may have, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A launcher's option as it stands in a command.

    Attributes:
        name: its name in full, however it was abbreviated.
        value: None where it takes none.
        words: what it consists of.
    """

    name: str
    value: str | None
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """One launcher program.

    Attributes:
        kind: which it is.
        flags: options without a value.
        valued: options with a value.
        is_open: whether its versions differ in further options with a value, which are taken as they are.
        takes_prefixes: whether an option may be cut short where it cannot be another, as argparse has it.
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
    valued: frozenset[str]
    is_open: bool
    takes_prefixes: bool
    module: tuple[str, ...]
    ranks: tuple[str, ...]
    nodes: tuple[str, ...]
    port: str
    rendezvous: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    config: str | None = None

    def options(self, words: Sequence[str], where: str) -> list[Option]:
        """The options that a command's words begin with: all up to the training script.

        Raises:
            DsoptError: an option that the launcher does not know, or that could be several.
        """
        found: list[Option] = []
        index = 0
        while index < len(words) and words[index].startswith("-"):
            option = self._option(words[index : index + 2], where)
            found.append(option)
            index += len(option.words)
        return found

    def _option(self, words: Sequence[str], where: str) -> Option:
        """The option that the first of these words is; the second may be its value."""
        word = words[0]
        if not word.startswith("--") and word[:2] in self.valued and len(word) > 2:  # -Hhosts
            return Option(name=word[:2], value=word[2:], words=(word,))
        typed, has_value, value = word.partition("=")
        name = self._full_name(typed, where)
        if has_value:
            return Option(name=name, value=value, words=(word,))
        if name in self.flags:
            return Option(name=name, value=None, words=(word,))
        return Option(name=name, value=words[1] if len(words) > 1 else "", words=tuple(words))

    def _full_name(self, typed: str, where: str) -> str:
        """An option's name as it is listed here: torchrun and accelerate take `--nproc-per-node`, too."""
        known = self.flags | self.valued
        name = typed
        if self.kind != "deepspeed" and typed.startswith("--"):
            name = "--" + typed[2:].replace("-", "_")
        if name in known:
            return name
        meant = sorted(full for full in known if len(name) > 2 and full.startswith(name)) if self.takes_prefixes else []
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise DsoptError(f"{where}: '{typed}' could be {' or '.join(meant)}. Write the one that is meant in full.")
        near = nearest(name, known, cutoff=_ALMOST if self.is_open else 0.75)
        if near is None and self.is_open and name != "--":
            return name
        hint = f"Did you mean '{near}'? " if near else ""
        raise DsoptError(
            f"{where}: '{typed}' is not an option of the {self.kind} launcher. {hint}"
            "Options of the training script come after the script's name."
        )


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
    is_open=False,
    takes_prefixes=True,
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
    valued=frozenset(
        """
        --nnodes --nproc_per_node --rdzv_backend --rdzv_endpoint --rdzv_id --rdzv_conf --max_restarts
        --monitor_interval --start_method --event_log_handler --role --log_dir -r --redirects -t --tee
        --local_ranks_filter --duplicate_stdout_filters --duplicate_stderr_filters --node_rank --master_addr
        --master_port --local_addr --logs_specs --numa_binding --signals_to_handle --shutdown_timeout
        """.split()
    ),
    is_open=True,
    takes_prefixes=True,
    module=("-m", "--module"),
    ranks=("--nproc_per_node",),
    nodes=("--nnodes",),
    port="--master_port",
    rendezvous=("--standalone", "--rdzv_backend", "--rdzv_endpoint", "--rdzv_id", "--rdzv_conf"),
)

# accelerate/commands/launch.py, 1.15; its many settings of FSDP, Megatron, FP8 and clouds all take a value
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
    valued=frozenset(
        """
        --config_file --mixed_precision --num_processes --num_machines --num_cpu_threads_per_process --dynamo_backend
        --dynamo_mode --gpu_ids --machine_rank --main_process_ip --main_process_port -t --tee --log_dir --role
        --rdzv_backend --rdzv_conf --max_restarts --monitor_interval --main_training_function --deepspeed_config_file
        --zero_stage --offload_optimizer_device --offload_param_device --offload_optimizer_nvme_path
        --offload_param_nvme_path --gradient_accumulation_steps --gradient_clipping --zero3_init_flag
        --zero3_save_16bit_model --deepspeed_hostfile --deepspeed_exclusion_filter --deepspeed_inclusion_filter
        --deepspeed_multinode_launcher --deepspeed_moe_layer_cls_names
        """.split()
    ),
    is_open=True,
    takes_prefixes=False,
    module=("-m", "--module"),
    ranks=("--num_processes",),
    nodes=("--num_machines",),
    port="--main_process_port",
    rendezvous=("--rdzv_backend", "--rdzv_conf"),
    devices=("--gpu_ids",),
    config="--deepspeed_config_file",
)

_MODULES: Final = {
    ("torch.distributed.run",): TORCHRUN,
    ("torch.distributed.launch",): TORCHRUN,
    ("deepspeed.launcher.runner",): DEEPSPEED,
    ("accelerate.commands.launch",): ACCELERATE,
    ("accelerate.commands.accelerate_cli", "launch"): ACCELERATE,
}
_PROGRAMS: Final = {
    ("deepspeed",): DEEPSPEED,
    ("ds",): DEEPSPEED,
    ("torchrun",): TORCHRUN,
    ("accelerate", "launch"): ACCELERATE,
    ("accelerate-launch",): ACCELERATE,
}


def recognize(words: Sequence[str]) -> tuple[Launcher, int] | None:
    """The launcher that a command begins with and how many words name it, or None."""
    if not words:
        return None
    program = Path(words[0]).name
    called, at, names = [program, *words[1:]], 0, _PROGRAMS
    if program.startswith("python"):
        flags = next((index for index, word in enumerate(words[1:]) if not word.startswith("-") or word == "-m"), 0)
        if list(words[flags + 1 : flags + 2]) != ["-m"]:
            return None
        called, at, names = list(words[flags + 2 :]), flags + 2, _MODULES
    for name, launcher in names.items():
        if tuple(called[: len(name)]) == name:
            return launcher, at + len(name)
    return None
