"""Hugging Face Accelerate's launcher: accelerate/commands/launch.py, 1.15."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.study.documents import read_yaml
from dsopt.study.launchers.launcher import Launcher, Options

_CONFIG_FILE: Final = "--config_file"  # Accelerate's own configuration, which may name DeepSpeed's
_TWINS = (
    "--zero_stage",
    "--gradient_accumulation_steps",
    "--gradient_clipping",
    "--offload_optimizer_device",
    "--offload_param_device",
    "--offload_optimizer_nvme_path",
    "--offload_param_nvme_path",
    "--zero3_save_16bit_model",
)


class _Accelerate(Launcher):
    def given_config(self, options: Options, cwd: Path, where: str) -> str | None:
        """The configuration that Accelerate's own configuration names.

        Raises:
            DsoptError: Accelerate gets DeepSpeed's settings one by one, so there is no file to tune.
        """
        twins = [name for name in _TWINS if options.value(name) is not None]
        file = options.value(_CONFIG_FILE)
        section = read_yaml(cwd / file, "Accelerate configuration (YAML)").get("deepspeed_config", {}) if file else {}
        named = section.get("deepspeed_config_file") if isinstance(section, Mapping) else None
        if isinstance(named, str):
            return named
        if section:
            twins += [f"deepspeed_config.{key} in {file}" for key in section]
        if twins:
            raise DsoptError(
                f"{where}: command: Accelerate gets DeepSpeed's settings one by one ({', '.join(twins)}). "
                "dsopt tunes a configuration file. Write them into one, and name it with --deepspeed_config_file."
            )
        return None

    def may_hide_deepspeed(self, options: Options) -> bool:
        """Whether Accelerate's own configuration may ask for it."""
        return options.value(_CONFIG_FILE) is not None


# its many settings of FSDP, Megatron, FP8 and clouds all take a value
ACCELERATE: Final = _Accelerate(
    name="accelerate",
    programs=(("accelerate", "launch"), ("accelerate-launch",)),
    modules=(("accelerate.commands.launch",), ("accelerate.commands.accelerate_cli", "launch")),
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
    module=("-m", "--module"),
    ranks=("--num_processes",),
    counts_all_nodes=True,
    nodes=("--num_machines",),
    port="--main_process_port",
    address="--main_process_ip",
    node_rank="--machine_rank",
    each_node=("--deepspeed_multinode_launcher", "standard"),
    rendezvous=("--rdzv_backend", "--rdzv_conf"),
    devices=("--gpu_ids",),
    config="--deepspeed_config_file",
    asks_for_deepspeed=("--use_deepspeed",),
    observable=frozenset(
        """
        --num_processes --num_machines --machine_rank --main_process_ip --main_process_port -m --module -q --quiet
        --config_file --cpu --multi_gpu --mixed_precision --num_cpu_threads_per_process --same_network --max_restarts
        --monitor_interval --role --use_deepspeed --deepspeed_config_file --zero_stage --offload_optimizer_device
        --offload_param_device --offload_optimizer_nvme_path --offload_param_nvme_path --gradient_accumulation_steps
        --gradient_clipping --zero3_init_flag --zero3_save_16bit_model --deepspeed_moe_layer_cls_names
        --dynamo_backend --dynamo_mode --dynamo_use_fullgraph --dynamo_use_dynamic --dynamo_use_regional_compilation
        """.split()
    ),
)
