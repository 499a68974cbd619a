"""Settings that DeepSpeed accepts and that do nothing, because of another setting or of the script.

Each was checked in the sources of DeepSpeed 0.19.8.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsopt.doctor.check import Check, warning
from dsopt.doctor.sources import script_text
from dsopt.study.ds_config import get_path, zero_stages
from dsopt.study.script_flags import is_on
from dsopt.study.spec import StudySpec

_NAME: Final = "configuration"
_TRAINER: Final = re.compile(r"\bHfArgumentParser\b|\bTrainingArguments\b|Trainer\(")
_RECOMPUTES: Final = ("--activation_checkpointing", "--gradient_checkpointing")  # of the Trainer
_CONFIGURES: Final = re.compile(r"\bcheckpointing\.configure\(")
_COMPILES: Final = re.compile(r"(?<!\bre)(?<!\btorch)\.compile\(")
# what the engine gives to ZeRO 3 alone
_ZERO_3: Final = (
    "zero_quantized_weights",
    "zero_quantized_nontrainable_weights",
    "zero_quantized_gradients",
    "zero_hpz_partition_size",
)


def idle_settings(spec: StudySpec) -> Iterator[Check]:
    """The settings of a study's configuration that do nothing."""
    yield from _quantization(spec)
    if spec.is_simulated:
        return
    text = script_text(spec.launch, Path(spec.cwd))
    if text is not None:
        yield from _activation_checkpointing(spec, text)
        yield from _deepcompile(spec, text)


def _quantization(spec: StudySpec) -> Iterator[Check]:
    stages = zero_stages(spec.ds_config)
    if 3 in stages:
        return
    for key in _ZERO_3:
        value = get_path(spec.ds_config, f"zero_optimization.{key}")
        if value is True or value not in (None, 0, 1):
            yield warning(
                _NAME,
                f"zero_optimization.{key}: it does nothing at ZeRO {' or '.join(map(str, stages))}: DeepSpeed reads it "
                "at ZeRO 3 alone",
                'Remove it, or set "stage": 3',
            )


def _activation_checkpointing(spec: StudySpec, text: str) -> Iterator[Check]:
    """Only `deepspeed.checkpointing.configure` reads the section, and the Trainer does not call it."""
    if spec.ds_config.get("activation_checkpointing") and is_trainer(text) and not _CONFIGURES.search(text):
        fix = "Remove the section"
        if not any(is_on(spec.launch.script_switch(flag)) for flag in _RECOMPUTES):
            fix += f", and add {_RECOMPUTES[0]} True to the command ({_RECOMPUTES[1]} in earlier versions)"
        yield warning(
            _NAME,
            "activation_checkpointing: it does nothing under the Hugging Face Trainer, which recomputes activations in "
            "its own way",
            fix,
        )


def _deepcompile(spec: StudySpec, text: str) -> Iterator[Check]:
    """The engine compiles in `engine.compile()`; the Trainer calls it, through Accelerate, if it is told to compile."""
    if get_path(spec.ds_config, "compile.deepcompile") is not True or _COMPILES.search(text):
        return
    command = spec.launch
    flags = ("--torch_compile", "--torch_compile_backend", "--torch_compile_mode")
    if any(is_on(command.script_switch(flag)) for flag in flags):
        return
    asked = command.option("--dynamo_backend") or dict(command.environment).get("ACCELERATE_DYNAMO_BACKEND")
    if (asked or "no").lower() != "no" or (asked is None and command.launcher.config is not None):
        return  # Accelerate compiles, or its own configuration may say so
    yield warning(
        _NAME,
        f"compile.deepcompile: it does nothing before engine.compile() is called, and neither "
        f"{command.script} nor what it imports beside it does that",
        "Add --torch_compile True to the command"
        if is_trainer(text)
        else "Call engine.compile() after deepspeed.initialize(), or remove the key",
    )


def is_trainer(text: str) -> bool:
    """Whether a script trains with Hugging Face's Trainer, or one that is built on it."""
    return bool(_TRAINER.search(text)) and ("transformers" in text or "trl" in text)
