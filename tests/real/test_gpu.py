"""What only a GPU can show: step times by its clock, its memory, fp16, starts by forking; on a stand-in the same words.

Where `tests/lagging/rig.py` gives this machine its stand-in for GPUs, the models are smaller: the CPU computes.
"""

import contextlib
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dsopt.experiment.lane import Lane
from dsopt.experiment.outcome import Cancelled, Infeasible, Measured, Outcome
from dsopt.experiment.run import Progress, run_experiment
from dsopt.launch.devices import DevicePool, free_ports, parse_devices, visible_gpus
from dsopt.launch.launch import Launch
from dsopt.launch.node_speed import measure
from dsopt.launch.processes import processes_of
from dsopt.launch.training import training_of
from dsopt.protocol.run_dir import RunDir
from dsopt.study.spec import MeasurementBudget
from tests.conftest import SCRIPTS, TINY_GPT
from tests.lagging.rig import is_lagging
from tests.real.test_experiment import needs_fp16
from tests.runs import launch, rules

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.xdist_group("real"),
    pytest.mark.skipif(not visible_gpus(), reason="no CUDA device"),
]

MIB = 2**20
MODEL = "--hidden 64 --layers 2" if is_lagging() else "--hidden 1024 --heads 16 --layers 12 --length 512"
NAME = "a device that lags" if is_lagging() else "NVIDIA"
TOO_MANY_ROWS = 5_000 if is_lagging() else 200_000
GPT = f"train.py {MODEL}"
CONFIG: Mapping[str, Any] = {
    "train_micro_batch_size_per_gpu": 8,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "torch_adam": True}},
    "zero_optimization": {"stage": 1, "reduce_bucket_size": 50_000_000},
}
STEPS = 12 if is_lagging() else 60
RULES = rules(measurement=MeasurementBudget(max_steps=STEPS), timeout_seconds=300, expected=None)


def started(tmp_path: Path, typed: str, name: str = "run", **changes: Any) -> Launch:
    """The launch of a script on the first GPU, with `CONFIG` and what `changes` say of it."""
    for script in (TINY_GPT, SCRIPTS / "finetune.py", SCRIPTS / "behaves.py"):
        shutil.copy(script, tmp_path)
    run_dir = RunDir.create(tmp_path, name)
    run_dir.write_json(run_dir.ds_config, {**CONFIG, **changes.pop("config", {})})
    if "plain" not in changes:
        typed = f"deepspeed --num_gpus 1 {typed} --deepspeed_config {run_dir.ds_config}"
    gpu = DevicePool(kind="gpu", indices=(visible_gpus()[0].index,))
    return launch(typed, cwd=tmp_path, run_dir=run_dir, devices=gpu, port=next(free_ports()), **changes)


def run(tmp_path: Path, typed: str = GPT, *, stops_at: int | None = None, **changes: Any) -> Outcome:
    """One run, which is stopped after so many steps; nothing of it is left."""
    begun, stop = started(tmp_path, typed, **changes), threading.Event()

    def note(progress: Progress) -> None:
        if stops_at is not None and progress.steps >= stops_at:
            stop.set()

    outcome = run_experiment(begun, RULES, stop.is_set, note)
    assert processes_of(begun.run_dir.path) == []
    return outcome


@pytest.mark.parametrize("start", ["launcher", "direct"])
def test_a_run_is_measured_on_the_devices_own_clock(tmp_path: Path, start: str) -> None:
    outcome = run(tmp_path, start=start)
    assert isinstance(outcome, Measured), outcome
    assert outcome.engine.dtype == "bf16"
    assert NAME in outcome.engine.device
    # 16 bytes of states for each parameter, at least
    assert outcome.peak_memory_bytes > 16 * outcome.engine.num_params
    assert (outcome.weight_bytes, outcome.optimizer_bytes) == (2.0, 12.0)
    assert outcome.activation_bytes > 0
    assert outcome.outside_bytes > 0
    assert is_lagging() or outcome.measurement.relative_half_width < 0.1


def test_ranks_that_are_forked_train_as_those_that_are_not(tmp_path: Path) -> None:
    why: list[str] = []
    with contextlib.closing(Lane(lambda: False, why.append)) as lane:
        launches = [started(tmp_path, GPT, name, start="warm") for name in ("a", "b")]
        first, second = (lane.run(one, RULES, lambda _: None) for one in launches)
        assert lane._forked.has_forked(launches[1].run_dir), why
    assert isinstance(first, Measured), first
    assert isinstance(second, Measured), second
    assert second.peak_allocated_bytes == pytest.approx(first.peak_allocated_bytes, rel=0.02)


@pytest.mark.parametrize("limit_mib", [None, 128 if is_lagging() else 2048])
def test_out_of_memory_is_recognised(tmp_path: Path, limit_mib: int | None) -> None:
    """By what the device has, and by what the run may have of it."""
    limit = None if limit_mib is None else limit_mib * MIB
    rows = TOO_MANY_ROWS if limit is None else 8
    outcome = run(tmp_path, memory_limit_bytes=limit, config={"train_micro_batch_size_per_gpu": rows})
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.reason == "oom"
    assert "out of memory" in outcome.message


@needs_fp16
def test_steps_that_a_loss_scale_skips_are_not_measured(tmp_path: Path) -> None:
    half = {"fp16": {"enabled": True, "initial_scale_power": 32}, "bf16": {"enabled": False}}
    outcome = run(tmp_path, config=half)
    assert isinstance(outcome, Measured), outcome
    assert outcome.engine.dtype == "fp16"
    assert outcome.skipped[:2] == (0, 1)
    assert outcome.measurement.skipped_steps == 0


def test_an_evaluation_before_the_first_step_is_no_training(tmp_path: Path) -> None:
    outcome = run(tmp_path, "behaves.py evaluates-first --batch-size 8", count_flops=True)
    assert isinstance(outcome, Measured), outcome
    assert outcome.rows == 8
    assert outcome.flops_per_step == 3 * (2 * 8 * 64 * 64)


def test_a_run_that_offloads_and_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    """The CPU steps on page-locked memory when the run ends."""
    offload = {"stage": 2, "reduce_bucket_size": 50_000_000, "offload_optimizer": {"device": "cpu", "pin_memory": True}}
    config = {"zero_optimization": offload, "zero_force_ds_cpu_optimizer": False}
    outcome = run(tmp_path, stops_at=3, config=config)
    assert isinstance(outcome, Cancelled), outcome


@pytest.mark.skipif(is_lagging(), reason="it stands in for DeepSpeed's accelerator alone")
def test_a_training_without_deepspeed_is_measured_on_the_devices_own_clock(tmp_path: Path) -> None:
    typed = "torchrun --nproc_per_node 1 finetune.py --bf16 --max_steps 500 --per_device_train_batch_size 8 "
    typed += "--output_dir out --report_to none --save_strategy no --disable_tqdm true"
    outcome = run(tmp_path, typed, plain=(8, 1))
    assert isinstance(outcome, Measured), outcome
    assert (outcome.engine.framework, outcome.engine.dtype) == ("torch", "bf16")
    assert NAME in outcome.engine.device
    assert outcome.rows == outcome.measurement.samples_per_step == 8
    assert outcome.peak_memory_bytes > 16 * outcome.engine.num_params


@pytest.mark.skipif(is_lagging(), reason="the stand-in has no GPU's speed")
def test_gpus_show_what_they_do(tmp_path: Path) -> None:
    pool = parse_devices(None)
    rates = measure(training_of(None), pool, tmp_path / "absent")
    assert rates is not None
    assert len(rates.matmul_tflops) == len(rates.copy_gb_per_s) == len(pool.indices)
    assert min(rates.matmul_tflops) > 5  # TFLOP/s in half precision: more than any CPU
    assert min(rates.copy_gb_per_s) > 50
    assert (rates.all_reduce_gb_per_s is not None) == (len(pool.indices) > 1)
