"""The flags of Hugging Face's Trainer that repeat values of DeepSpeed's configuration, or fill them in."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dsopt.study.command import LaunchCommand
from dsopt.study.documents import is_file
from dsopt.study.ds_config import TRAIN_BATCH
from dsopt.study.script_flags import is_on
from dsopt.study.space import ACCUMULATION, MICRO_BATCH

LEARNING_RATE: Final = "--learning_rate"
# The Trainer refuses a configuration that contradicts these.
FLAGS: Final[Mapping[str, str]] = {
    MICRO_BATCH: "--per_device_train_batch_size",
    ACCUMULATION: "--gradient_accumulation_steps",
}
# what `transformers.TrainingArguments` has for a flag that is absent
DEFAULTS: Final[Mapping[str, float]] = {
    FLAGS[MICRO_BATCH]: 8,
    FLAGS[ACCUMULATION]: 1,
    LEARNING_RATE: 5e-5,
    "--max_grad_norm": 1.0,
    "--weight_decay": 0.0,
}
_PARSER = "HfArgumentParser"


def trainer_mappings(command: LaunchCommand, cwd: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The mappings of the Trainer's usual flags, which the user need not give.

    It maps a flag that the command has. It maps both if the script reads its arguments with Hugging Face's parser: an
    absent flag then has the Trainer's default, which would contradict the configuration as well.

    Args:
        command: the launch command.
        cwd: folder that it starts in.
        given: the user's own mappings, which win.
    """
    parsed = _reads_trainer_arguments(command, cwd)
    return {
        key: flag
        for key, flag in FLAGS.items()
        if key not in given and (parsed or command.script_switch(flag) is not None)
    }


def filled_in(config: Mapping[str, Any], command: LaunchCommand, mappings: Mapping[str, str]) -> dict[str, Any]:
    """The configuration that the engine gets from a script that fills it in from its flags.

    That is what the Trainer does with "auto" for sizes and precision. A flag also counts if the configuration does not
    have the key: Accelerate adds the section that `--fp16` or `--bf16` asks for. "auto" in other places stays.

    Args:
        config: the configuration as the script reads it.
        command: the command that starts the script.
        mappings: flags by path in the configuration; the Trainer's flags are the default.
    """
    filled = copy.deepcopy(dict(config))
    if filled.get(TRAIN_BATCH) == "auto":
        del filled[TRAIN_BATCH]
    for key, usual in FLAGS.items():
        typed = command.script_value(mappings.get(key, usual))
        if filled.get(key) == "auto" or (key not in filled and typed and TRAIN_BATCH not in filled):
            filled[key] = int(typed) if typed is not None and typed.isdecimal() else int(DEFAULTS[usual])
    for name in ("fp16", "bf16"):
        section = filled.setdefault(name, {"enabled": "auto"})
        if isinstance(section, dict) and section.get("enabled") == "auto":
            flag = mappings.get(f"{name}.enabled", f"--{name}")
            section["enabled"] = is_on(command.script_switch(flag)) or command.option("--mixed_precision") == name
    return filled


def _reads_trainer_arguments(command: LaunchCommand, cwd: Path) -> bool:
    path = cwd / command.script
    if command.is_module or not is_file(path):
        return False
    try:
        return _PARSER in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
