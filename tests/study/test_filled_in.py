"""What a script makes of a configuration with its flags, which a dry run reads as the engine would get it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import Error
from dsopt.protocol.run_dir import RUN_DIR_VARIABLE, RunDir
from dsopt.simulated.catalogue import MODELS
from dsopt.simulated.settings import read_settings
from dsopt.study.command import LaunchCommand
from dsopt.study.simulation import Simulation
from dsopt.study.trainer import filled_in

MBS, GAS = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
AUTO = {MBS: "auto", GAS: "auto"}
FP16 = {"fp16": {"enabled": "auto", "loss_scale": 0}}
# GPT2-large with what Hugging Face's documents show: everything "auto"
ALL_AUTO = {**AUTO, "train_batch_size": "auto", **FP16, "bf16": {"enabled": "auto"}}


def filled(config: dict[str, Any], args: str, launcher: str = "deepspeed", **mappings: str) -> dict[str, Any]:
    command = LaunchCommand.parse(f"{launcher} t.py --deepspeed ds.json {args}", "test: command")
    return filled_in(config, command, mappings)


@pytest.mark.parametrize(
    ("config", "args", "micro_batch", "gas", "dtype"),
    [
        (AUTO, "--per_device_train_batch_size 4 --gradient_accumulation_steps=2", 4, 2, "fp32"),
        (AUTO, "", 8, 1, "fp32"),  # the Trainer's own
        (ALL_AUTO, "--fp16 --per_device_train_batch_size 4", 4, 1, "fp16"),
        (ALL_AUTO, "--bf16 true", 8, 1, "bf16"),
        (ALL_AUTO, "--bf16 false", 8, 1, "fp32"),
        ({MBS: 2}, "--fp16 --per_device_train_batch_size 4", 2, 1, "fp16"),
        ({MBS: 2, "bf16": {"enabled": True}}, "", 2, 1, "bf16"),
        ({MBS: 2, "fp16": {"enabled": "true"}}, "", 2, 1, "fp16"),
        ({MBS: 2, "fp16": {"enabled": False}}, "", 2, 1, "fp32"),
        ({}, "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 --bf16", 4, 2, "bf16"),
        ({"train_batch_size": 64}, "--gradient_accumulation_steps 2", 8, 1, "fp32"),
    ],
)
def test_auto_and_what_is_not_said_is_filled_in_from_flags(
    config: dict, args: str, micro_batch: int, gas: int, dtype: str
) -> None:
    settings = read_settings(filled(config, args), MODELS["gpt2-large"], ranks=8, nodes=1)
    assert (settings.micro_batch, settings.gas, settings.dtype) == (micro_batch, gas, dtype)


def test_flags_of_other_names_fill_in_what_they_are_mapped_to() -> None:
    found = filled(ALL_AUTO, "--bs 4 --half", **{MBS: "--bs", "fp16.enabled": "--half"})
    assert (found[MBS], found["fp16"]) == (4, {"enabled": True, "loss_scale": 0})
    assert filled({MBS: 1}, "", "accelerate launch --mixed_precision bf16")["bf16"] == {"enabled": True}


def test_the_configuration_itself_stays_as_it_is() -> None:
    before = json.dumps(ALL_AUTO)
    filled(ALL_AUTO, "--fp16")
    assert json.dumps(ALL_AUTO) == before


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "neither the configuration nor a flag of the script gives a micro-batch size"),
        ({MBS: 1, "zero_optimization": {"reduce_bucket_size": "large"}}, "could not convert string to float: 'large'"),
    ],
)
def test_what_cannot_be_simulated_is_one_line(tmp_path: Path, config: dict, message: str) -> None:
    run_dir = RunDir(tmp_path)
    section = Simulation.model_validate({"gpu": "V100-32GB", "model": "gpt2-large"})
    asked = {"section": section.model_dump(mode="json", exclude_none=True), "gpus": 8, "nodes": 1}
    run_dir.write_json(run_dir.simulation, {**asked, "ds_config": config, "launch": 0, "steps": 10})
    environment = {**os.environ, RUN_DIR_VARIABLE: str(tmp_path)}
    program = [sys.executable, "-m", "dsopt.simulated"]
    assert subprocess.run(program, env=environment, capture_output=True, check=False).returncode == 1
    (event,) = EventReader(run_dir).read()
    assert isinstance(event, Error)
    assert message in event.message
