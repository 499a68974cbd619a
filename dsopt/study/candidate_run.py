"""What a candidate runs with: its command and its DeepSpeed configuration."""

from collections.abc import Mapping
from typing import Any, Final

from dsopt.study.command import LaunchCommand
from dsopt.study.ds_config import baseline_config, candidate_config, get_path, offload_devices
from dsopt.study.mapped_flags import with_candidates_flags, with_own_flags
from dsopt.study.space import NUM_GPUS, NUM_NODES, ZERO, Candidate
from dsopt.study.spec import StudySpec

_SAVES_WHOLE: Final = "stage3_gather_16bit_weights_on_model_save"
_SAVES_WHOLE_TOO: Final = ("gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save")


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
    # DeepSpeed's own default; Accelerate refuses a configuration without the section
    config.setdefault("zero_optimization", {"stage": 0})
    if candidate is not None and candidate.stage == 3 and own_stage(spec) < 3:
        _save_whole(config["zero_optimization"])
    if aio and "aio" not in config and "nvme" in offload_devices(config):
        config["aio"] = dict(aio)
    return config


def own_stage(spec: StudySpec) -> int:
    """The ZeRO stage of the user's own configuration; 0 where it leaves that to dsopt."""
    stage = get_path(spec.own_config, f"{ZERO}stage")
    return stage if isinstance(stage, int) else 0


def _save_whole(zero: dict[str, Any]) -> None:
    """Lets the script save whole weights where its ranks have parts of them, as it does without ZeRO 3.

    DeepSpeed's `save_16bit_model` saves nothing else, nor does the Trainer. It changes nothing but what is saved.
    """
    if not any(key in zero for key in (_SAVES_WHOLE, *_SAVES_WHOLE_TOO)):
        zero[_SAVES_WHOLE] = True
