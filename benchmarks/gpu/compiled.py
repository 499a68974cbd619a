"""Whether steps of a script that compiles its engine take longer in an experiment, whose probe is compiled with it."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from dsopt.experiment.lane import Lane
from dsopt.experiment.rules import RunRules
from dsopt.launch.devices import free_ports, parse_devices
from dsopt.launch.launch import Launch
from dsopt.launch.program import path_with
from dsopt.protocol.run_dir import RunDir
from dsopt.study.command import LaunchCommand
from dsopt.study.spec import MeasurementBudget

_SCRIPT: Final = Path(__file__).with_name("compiles.py")
_STEPS: Final = 60
_DS_CONFIG: Final[dict[str, Any]] = {
    "train_micro_batch_size_per_gpu": 4,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "torch_adam": True}},
    "zero_optimization": {"stage": 1, "reduce_bucket_size": 5_000_000},
}


def compare(arguments: str, rounds: int) -> str:
    """Runs the script alone and as an experiment in turn. Gives the medians that it prints, and their ratios."""
    lines = []
    pool = parse_devices(None)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            run_dir = RunDir.create(Path(folder), f"round-{number}")
            run_dir.write_json(run_dir.ds_config, _DS_CONFIG)
            typed = f"deepspeed --num_gpus 1 {_SCRIPT} {arguments} --deepspeed_config {run_dir.ds_config}"
            launch = Launch(
                command=LaunchCommand.parse(typed, "benchmark"),
                cwd=Path(folder),
                run_dir=run_dir,
                devices=pool,
                port=next(free_ports()),
                memory_limit_bytes=None,
                start="direct",
            )
            alone, in_experiment = _alone(typed), _in_experiment(launch)
            lines.append(f"alone {alone:.6f} s, in an experiment {in_experiment:.6f} s: {in_experiment / alone:.4f}")
    return "\n".join(lines)


def _alone(typed: str) -> float:
    environment = {**os.environ, "PATH": path_with(os.environ, Path(sys.executable))}
    return _told(subprocess.run(typed.split(), env=environment, check=True, capture_output=True, text=True).stdout)


def _in_experiment(launch: Launch) -> float:
    budget = MeasurementBudget(max_steps=_STEPS, max_seconds=200)
    rules = RunRules(
        measurement=budget, window=(3, _STEPS - 2), floor=(3, 5), timeout_seconds=300, expected=None, needs_flops=False
    )
    lane = Lane(lambda: False, print)
    try:
        outcome = lane.run(launch, rules, lambda _progress: None)
    finally:
        lane.close()
    assert outcome.state == "measured", outcome
    return _told(launch.run_dir.stdout.read_text(encoding="utf-8"))


def _told(output: str) -> float:
    """The last median that the script has printed."""
    return float(re.findall(r"median (\S+) s", output)[-1])
