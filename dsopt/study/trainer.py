"""The flags of Hugging Face's Trainer that say again what stands in DeepSpeed's configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dsopt.study.command import LaunchCommand
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
    """The mappings of usual Trainer flags that a person need not give.

    A flag that the command has is mapped; so are both when the script reads its arguments with Hugging Face's parser,
    where an absent flag is the Trainer's default and would contradict the configuration as well.

    Args:
        command: the launch command.
        cwd: folder it is started in.
        given: mappings the user gives, which are left alone.
    """
    parsed = _reads_trainer_arguments(command, cwd)
    return {
        key: flag
        for key, flag in FLAGS.items()
        if key not in given and (parsed or command.script_switch(flag) is not None)
    }


def _reads_trainer_arguments(command: LaunchCommand, cwd: Path) -> bool:
    if command.is_module:
        return False
    try:
        return _PARSER in (cwd / command.script).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
