"""What a candidate runs with: its command and its DeepSpeed configuration."""

from collections.abc import Mapping
from typing import Any, Final

from dsopt.study.command import LaunchCommand
from dsopt.study.ds_config import TRAIN_BATCH, baseline_config, candidate_config, offload_devices
from dsopt.study.mapped_flags import whole_batch, with_candidates_flags, with_own_flags
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, NUM_GPUS, NUM_NODES, Candidate
from dsopt.study.spec import StudySpec

_SHARES_SAMPLES: Final = "sequence_parallel_size"


def candidate_command(spec: StudySpec, candidate: Candidate | None) -> LaunchCommand:
    """The user's command with the candidate's resources and script arguments.

    The user's own run (None) is as typed, except for mapped flags that do not say what the configuration says.
    """
    command = spec.resources
    if candidate is None:
        return with_own_flags(spec, command)
    ranks, nodes = candidate.resource(NUM_GPUS), candidate.resource(NUM_NODES)
    command = command if nodes is None else command.with_nodes(nodes)
    command = command if ranks is None else command.with_ranks(ranks)
    command = with_candidates_flags(spec, command, candidate)
    for flag, value in candidate.script_flags.items():
        takes_value = any(choice not in (None, "") for choice in spec.search.args.get(flag, [""]))
        command = command.with_script_switch(flag, None if value is None else str(value), takes_value=takes_value)
    return command


def run_config(spec: StudySpec, candidate: Candidate | None, aio: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """DeepSpeed's configuration of a candidate, or of the user's own.

    Args:
        spec: the study.
        candidate: None for the user's own.
        aio: what dsopt measured of the disk to offload to; used if the run offloads to it and the user sets no `aio`.
    """
    config = baseline_config(spec.ds_config) if candidate is None else candidate_config(spec.ds_config, candidate)
    if candidate is not None and _has_all_sizes(spec) and (total := whole_batch(spec, candidate)) is not None:
        config[TRAIN_BATCH] = total
    # DeepSpeed's own default; Accelerate refuses a configuration without the section
    config.setdefault("zero_optimization", {"stage": 0})
    if aio and "aio" not in config and "nvme" in offload_devices(config):
        config["aio"] = dict(aio)
    return config


def _has_all_sizes(spec: StudySpec) -> bool:
    """Whether the user's own configuration has all three sizes, so that the script may read any of them.

    They must be those of the command's ranks, and no flag or setting that is tried may change how many of these
    DeepSpeed counts.
    """
    total, micro_batch, gas = (spec.own_config.get(key) for key in (TRAIN_BATCH, MICRO_BATCH, ACCUMULATION))
    if not (isinstance(total, int) and isinstance(micro_batch, int) and isinstance(gas, int)):
        return False
    if spec.search.args or _SHARES_SAMPLES in spec.search.ds_config:
        return False
    return total == whole_batch(spec, Candidate(stage=0, micro_batch=micro_batch, gas=gas))
