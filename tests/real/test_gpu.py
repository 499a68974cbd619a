"""What only a CUDA device can show: device-side step times, peak memory, out of memory by the memory fraction."""

import shutil
import threading
from pathlib import Path

import pytest

from dsopt.experiment.outcome import Infeasible, Measured, Outcome
from dsopt.experiment.run import run_experiment
from dsopt.launch.devices import DevicePool, free_ports, visible_gpus
from dsopt.protocol.run_dir import RunDir
from dsopt.study.spec import MeasurementBudget
from tests.conftest import SCRIPTS, TINY_GPT
from tests.runs import launch, rules

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.xdist_group("real"),
    pytest.mark.skipif(not visible_gpus(), reason="no CUDA device"),
]

CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}


def run(tmp_path: Path, memory_limit_bytes: int | None, plain: tuple[int, int] | None = None) -> Outcome:
    """With DeepSpeed, or without it: then by the Trainer."""
    shutil.copy(TINY_GPT, tmp_path)
    shutil.copy(SCRIPTS / "finetune.py", tmp_path)
    run_dir = RunDir.create(tmp_path, "run")
    run_dir.write_json(run_dir.ds_config, CONFIG)
    typed = (
        "deepspeed --num_gpus 1 train.py --hidden 1024 --heads 16 --layers 12 --length 512 "
        f"--deepspeed_config {run_dir.ds_config}"
    )
    if plain is not None:
        typed = "torchrun --nproc_per_node 1 finetune.py --bf16 --max_steps 500 --per_device_train_batch_size 8 "
        typed += "--output_dir out --report_to none --save_strategy no --disable_tqdm true"
    started = launch(
        typed,
        cwd=tmp_path,
        run_dir=run_dir,
        devices=DevicePool(kind="gpu", indices=(visible_gpus()[0].index,)),
        port=next(free_ports()),
        memory_limit_bytes=memory_limit_bytes,
        plain=plain,
    )
    under = rules(measurement=MeasurementBudget(max_steps=60), timeout_seconds=300, expected=None)
    return run_experiment(started, under, threading.Event().is_set, lambda progress: None)


def test_a_gpu_run_is_measured_on_the_devices_own_clock(tmp_path: Path) -> None:
    outcome = run(tmp_path, None)
    assert isinstance(outcome, Measured), outcome
    assert outcome.engine.dtype == "bf16"
    assert "NVIDIA" in outcome.engine.device
    # 16 bytes of states for each of 150M parameters, at least
    assert outcome.peak_memory_bytes > 16 * outcome.engine.num_params
    assert outcome.activation_bytes > 0
    assert outcome.measurement.relative_half_width < 0.1


def test_the_memory_fraction_makes_a_real_out_of_memory(tmp_path: Path) -> None:
    outcome = run(tmp_path, 2 * 2**30)
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.reason == "oom"


def test_a_training_without_deepspeed_is_measured_on_the_devices_own_clock(tmp_path: Path) -> None:
    outcome = run(tmp_path, None, plain=(8, 1))
    assert isinstance(outcome, Measured), outcome
    assert (outcome.engine.framework, outcome.engine.dtype) == ("torch", "bf16")
    assert "NVIDIA" in outcome.engine.device
    assert outcome.rows == outcome.measurement.samples_per_step == 8
    assert outcome.peak_memory_bytes > 16 * outcome.engine.num_params
