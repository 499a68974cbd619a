"""Single real runs: what each way of going wrong becomes, and what is left on the machine afterwards."""

import importlib.metadata
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Measured, Outcome
from dsopt.experiment.rules import OwnSizes
from dsopt.experiment.run import run_experiment
from dsopt.launch.devices import DevicePool, free_ports
from dsopt.launch.forked import ForkedStarts
from dsopt.launch.leftovers import remove_shared_memory
from dsopt.launch.process import Process
from dsopt.launch.processes import processes_of
from dsopt.protocol.run_dir import RunDir
from dsopt.study.space import Candidate
from tests.conftest import SCRIPTS
from tests.lagging.rig import accelerator, is_lagging
from tests.runs import launch, rules

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]  # one at a time: they use all cores
on_both_devices = pytest.mark.parametrize("device", ["cpu", "lagging"], indirect=True)

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
}


def has_fp16() -> bool:
    import torch

    return torch.cuda.is_available() or torch.ops.mkldnn._is_mkldnn_fp16_supported()


Run = Callable[..., Outcome]
needs_fp16 = pytest.mark.skipif(not has_fp16(), reason="neither a GPU nor a CPU that computes in fp16")


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU. What the device may change is tried on one that lags behind its host, too."""
    if getattr(request, "param", "cpu") == "lagging":
        for name, value in accelerator(gib=1).items():
            monkeypatch.setenv(name, value)


def knows(packages: str, folder: Path, tell: Callable[[str], None]) -> ForkedStarts:
    """A starter that has learned from a run of a script which imports these packages and nothing more."""
    run_dir = RunDir.create(folder, "learned")
    code = f"import {packages}; from dsopt.probe.imported import *; ImportRecord().write(RunDir({str(run_dir.path)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    forked = ForkedStarts(lambda: False, tell)
    forked.learn(run_dir)
    return forked


class Starter:
    """Forks ranks, as a worker does from its second run on: what they import has been imported once."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder
        self.why: list[str] = []
        self.forked = knows("deepspeed, torch._dynamo", folder, self.why.append)


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    made = Starter(tmp_path_factory.mktemp("cwd"))
    yield made
    made.forked.close()


@pytest.fixture
def run(tmp_path: Path, starter: Starter) -> Run:
    return partial(run_here, tmp_path, starter=starter)


def run_here(
    tmp_path: Path,
    how: str,
    *,
    starter: Starter | None = None,
    config: dict | None = None,
    timeout_seconds: float = 120,
    memory_limit_bytes: int | None = None,
    expected: Candidate | None = None,
    needs_flops: bool = False,
    stop: threading.Event | None = None,
    script_args: str = "",
    leases: str | None = None,
    by_launcher: bool = False,
    ranks: int = 1,
    script: str = "behaves.py",
    **further: object,
) -> Outcome:
    """One run of the misbehaving script, under `further` rules; checks that nothing of it is left.

    A starter forks the rank where that needs no other process than all the others.
    """
    run_dir = RunDir.create(tmp_path, how)
    run_dir.write_json(run_dir.ds_config, CONFIG if config is None else config)
    port = next(free_ports())
    launcher = f"OMP_NUM_THREADS=1 deepspeed --num_gpus {ranks}"
    forks = starter is not None and not (is_lagging() or leases or by_launcher or ranks > 1)
    leases = leases or ("gpu" if is_lagging() else "cpu")
    started = launch(
        f"{launcher} {SCRIPTS / script} {how} {script_args} --deepspeed_config {run_dir.ds_config}",
        cwd=starter.cwd if starter is not None else tmp_path,
        run_dir=run_dir,
        port=port,
        memory_limit_bytes=memory_limit_bytes,
        count_flops=needs_flops,
        devices=DevicePool(kind=leases, indices=tuple(range(ranks))),
        start="launcher" if by_launcher else "warm" if forks else "direct",
    )
    under = rules(timeout_seconds=timeout_seconds, expected=expected, needs_flops=needs_flops, **further)
    start = partial(Process, forked=starter.forked if starter is not None and forks else None)
    asked_to_stop = (stop or threading.Event()).is_set
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_CURRENT_TEST", "any")  # or each would have another environment
        outcome = run_experiment(started, under, asked_to_stop, lambda progress: None, start)
    assert processes_of(run_dir.path) == []
    assert remove_shared_memory(port) == []
    if starter is not None and forks:
        assert starter.forked.has_forked(run_dir), starter.why
    return outcome


@on_both_devices
def test_a_run_is_measured_with_what_stands_behind_it(run: Run, tmp_path: Path) -> None:
    asked = Candidate(stage=0, micro_batch=4, gas=1)
    outcome = run("trains", expected=asked, needs_flops=True, by_launcher=not is_lagging(), ranks=2)
    assert isinstance(outcome, Measured), outcome
    assert outcome.engine.world_size == 2
    assert outcome.engine.num_params == outcome.engine.largest_layer_params == 64 * 64 + 64
    assert outcome.engine.host_memory_bytes > 2**30
    installed = [importlib.metadata.version(name) for name in ("torch", "deepspeed")]
    assert outcome.engine.software.startswith(f"torch {installed[0]}, DeepSpeed {installed[1]}")
    assert (outcome.rows, outcome.elements, outcome.passes) == (4, 4 * 64, 1)
    assert (outcome.weight_bytes, outcome.gradient_bytes, outcome.optimizer_bytes) == (4.0, 4.0, 8.0)
    parts = [outcome.metric(name) for name in ("forward", "backward", "step")]
    assert all(part > 0 for part in parts)
    assert sum(parts) <= 1.01 * outcome.metric("latency")
    assert outcome.measurement.samples_per_step == 8
    assert len(outcome.step_seconds) >= outcome.measurement.warmup_steps + outcome.measurement.measured_steps
    assert (5e6 if is_lagging() else 50e6) < outcome.peak_memory_bytes < 8e9
    # forward and the weights' gradient of one 4 × 64 by 64 × 64 product, two operations a multiply-add
    assert outcome.flops_per_step == 3 * (2 * 4 * 64 * 64)
    # the events are of the documented protocol
    lines = [json.loads(line) for line in (tmp_path / "trains" / "events-rank1.jsonl").read_text().splitlines()]
    assert {line["event"] for line in lines} >= {"engine", "step", "memory"}
    assert all(line["v"] == 1 and line["rank"] == 1 for line in lines)


def test_a_script_may_step_when_it_likes(run: Run) -> None:
    """Without DeepSpeed's management of accumulation, such a run was seen to make no step."""
    outcome = run("steps-when-it-likes", config={**CONFIG, "managed_gradient_accumulation": False})
    assert isinstance(outcome, Measured), outcome
    assert (outcome.passes, outcome.step_rows) == (3, 12.0)


@pytest.mark.slow
def test_ranks_that_share_layers_share_samples(run: Run) -> None:
    """DeepSpeed counts the samples of each: AutoTP was told to be twice as fast as it is."""
    config = {**CONFIG, "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 1}}
    outcome = run("shares-layers", config=config, ranks=2, script="shares_layers.py")
    assert isinstance(outcome, Measured), outcome
    assert (outcome.measurement.samples_per_step, outcome.engine.micro_batch, outcome.engine.autotp) == (4, 4, 2)


@on_both_devices
def test_an_evaluation_before_the_first_step_is_no_training(run: Run) -> None:
    outcome = run("evaluates-first", expected=Candidate(stage=0, micro_batch=4, gas=1), needs_flops=True)
    assert isinstance(outcome, Measured), outcome
    assert outcome.rows == 4
    assert outcome.flops_per_step == 3 * (2 * 4 * 64 * 64)


def test_a_model_that_stays_in_evaluation_mode_trains_all_the_same(run: Run) -> None:
    """Those that are read from files are in it, and not every script leaves it."""
    outcome = run("stays-in-evaluation", needs_flops=True)
    assert isinstance(outcome, Measured), outcome
    assert outcome.rows == 4
    assert all(outcome.metric(name) > 0 for name in ("forward", "backward", "step"))


@on_both_devices
def test_an_engine_that_is_compiled_is_measured_as_any_other(run: Run) -> None:
    """`torch.compile(engine)` traces what the probe has put around it, and could not hash it."""
    outcome = run("compiles", expected=Candidate(stage=0, micro_batch=4, gas=1))
    assert isinstance(outcome, Measured), outcome
    assert (outcome.rows, outcome.passes) == (4, 1)
    assert all(outcome.metric(name) > 0 for name in ("forward", "backward", "step"))


@pytest.mark.parametrize("teacher", ["has-a-teacher", "has-a-teacher-in-bf16"])
def test_a_frozen_engine_that_is_built_first_is_not_the_one_that_trains(run: Run, teacher: str) -> None:
    """As of a teacher at ZeRO 3, or a reference model at ZeRO 0: it has something in its optimizer's place."""
    outcome = run(teacher, expected=Candidate(stage=0, micro_batch=4, gas=1))
    assert isinstance(outcome, Measured), outcome
    assert (outcome.engine.zero_stage, outcome.rows) == (0, 4)
    assert outcome.engine.engines == 1


def test_a_further_engine_that_trains_is_counted(run: Run) -> None:
    outcome = run("has-a-critic")
    assert isinstance(outcome, Measured), outcome
    assert (outcome.engine.engines, outcome.engine.num_params) == (2, 64 * 64 + 64)


@on_both_devices
@pytest.mark.parametrize("how", ["evaluates-between-steps", "evaluates-between-steps-by-its-module"])
def test_an_evaluation_between_two_steps_belongs_to_neither(run: Run, how: str) -> None:
    """The Trainer evaluates the model itself."""
    outcome = run(how)
    assert isinstance(outcome, Measured), outcome
    assert max(outcome.step_seconds[1:]) < 0.5


def test_an_evaluation_in_each_step_is_part_of_it(run: Run) -> None:
    """As in reinforcement learning, where each step begins with what the model says now."""
    outcome = run("evaluates-in-each-step")
    assert isinstance(outcome, Measured), outcome
    assert outcome.measurement.step_seconds > 0.05


@on_both_devices
def test_operations_are_counted_of_a_script_that_calls_backward_of_its_loss(run: Run) -> None:
    zero = {"stage": 1, "reduce_bucket_size": 10**6}  # at stage 0 none may; the usual bucket fills the lagging device
    config = {**CONFIG, "gradient_accumulation_steps": 2, "zero_optimization": zero}
    config["bf16"] = {"enabled": True}
    outcome = run("calls-backward-of-its-loss", config=config, needs_flops=True)
    assert isinstance(outcome, Measured), outcome
    assert outcome.passes == 2
    assert (outcome.weight_bytes, outcome.gradient_bytes, outcome.optimizer_bytes) == (2.0, 2.0, 12.0)
    assert outcome.flops_per_step == 2 * 3 * (2 * 4 * 64 * 64)


@on_both_devices
def test_a_script_that_catches_out_of_memory_does_not_hide_it(run: Run) -> None:
    outcome = run("catches-out-of-memory")
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.reason == "oom"


def test_a_run_on_other_devices_than_it_leased_ends(run: Run) -> None:
    outcome = run("trains", leases="gpu")
    assert isinstance(outcome, Failed), outcome
    assert "dsopt gave this run GPUs, but DeepSpeed would train on the CPU" in outcome.message


def test_an_exception_is_that_of_the_rank_that_failed_first(run: Run) -> None:
    outcome = run("raises", by_launcher=True, ranks=2)
    assert isinstance(outcome, Failed), outcome
    assert outcome.reason == "crash"
    assert outcome.message.startswith("rank 1: ValueError: the second rank has had enough.")
    assert "stderr.log" in outcome.message


def test_the_memory_limit_is_enforced_and_met_as_out_of_memory(run: Run) -> None:
    """16 GiB of inputs in the third step, on a rank that may have 4 GiB."""
    outcome = run("hogs", memory_limit_bytes=4 * 2**30)
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.reason == "oom"
    assert "can't allocate memory" in outcome.message


def test_a_configuration_that_deepspeed_refuses_is_infeasible(run: Run) -> None:
    outcome = run("trains", config={**CONFIG, "zero_optimization": {"stage": 7}})
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.reason == "invalid_config"
    assert "1 validation error for DeepSpeedZeroConfig: stage: Input should be 0, 1, 2, 3" in outcome.message
    assert "further information" not in outcome.message


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("ignores-deepspeed", "the script ended without calling deepspeed.initialize"),
        ("ends-early", "the script ended after 3 optimizer steps"),
    ],
)
def test_a_script_that_gives_nothing_to_measure_is_told_so(run: Run, how: str, message: str) -> None:
    outcome = run(how)
    assert isinstance(outcome, Failed), outcome
    assert outcome.reason == "no_metrics"
    assert message in outcome.message


def test_a_script_that_hangs_is_ended_at_its_timeout(run: Run) -> None:
    outcome = run("hangs", timeout_seconds=15)
    assert isinstance(outcome, Failed), outcome
    assert outcome.reason == "timeout"
    assert "the script had not built DeepSpeed's engine when timeout_seconds (15 s) had passed" in outcome.message


def test_a_script_with_a_configuration_of_its_own_is_found_out(run: Run) -> None:
    outcome = run("own-config", expected=Candidate(stage=1, micro_batch=4, gas=1))
    assert isinstance(outcome, Infeasible), outcome
    assert "ZeRO stage 0, micro-batch 5, accumulation 1, not with 1, 4, 1 as configured" in outcome.message


def test_a_script_with_a_batch_size_of_its_own_is_told_which_flag_to_map(run: Run) -> None:
    outcome = run(
        "trains",
        config={**CONFIG, "train_micro_batch_size_per_gpu": 8},
        expected=Candidate(stage=0, micro_batch=8, gas=1),
        script_args="--batch-size 4",
        own=OwnSizes(rows=4, micro_batch=4, gas=1),
    )
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.reason == "fixed_batch"
    assert "'--batch-size 4' in your command has that value" in outcome.message


def test_sizes_that_a_script_sets_after_its_engine_was_built_are_told(run: Run) -> None:
    expected, own = Candidate(stage=0, micro_batch=8, gas=1), OwnSizes(rows=4, micro_batch=4, gas=4)
    config = {**CONFIG, "train_micro_batch_size_per_gpu": 8}
    outcome = run(
        "keeps-its-global-batch",
        config=config,
        expected=expected,
        own=own,
        script_args="--batch-size 8",
        ranks=2,
    )
    assert isinstance(outcome, Infeasible), outcome
    assert "ZeRO stage 0, micro-batch 8, accumulation 2, not with 0, 8, 1 as configured" in outcome.message
    assert "set_train_batch_size" in outcome.message


def fp16(stage: int, power: int) -> dict:
    zero = {"stage": stage, "reduce_bucket_size": 1_000_000}
    return {**CONFIG, "zero_optimization": zero, "fp16": {"enabled": True, "initial_scale_power": power}}


@on_both_devices
@needs_fp16
def test_steps_that_a_loss_scale_skips_are_warm_up(run: Run) -> None:
    """Gradients of 4 overflow in fp16 until 2^24 has been halved ten times."""
    outcome = run("trains", config=fp16(1, 24), must_be_sound=True)
    assert isinstance(outcome, Measured), outcome
    assert outcome.skipped[:8] == tuple(range(8))
    assert outcome.measurement.warmup_steps > len(outcome.skipped) - 1
    assert outcome.measurement.skipped_steps == 0
    assert outcome.nonfinite == ()


@on_both_devices
@needs_fp16
@pytest.mark.parametrize(
    ("stage", "words"), [(0, "the optimizer skipped"), (3, "Current loss scale already at minimum")]
)
def test_a_loss_of_nan_in_fp16_is_an_overflow(run: Run, stage: int, words: str) -> None:
    """ZeRO 0 skips for ever; the other stages raise once the loss scale is 1."""
    outcome = run("diverges", config=fp16(stage, 2))
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.reason == "overflow"
    assert words in outcome.message
    assert "train it in bf16 or fp32" in outcome.message


def test_steps_that_are_skipped_in_bf16_are_an_overflow(run: Run) -> None:
    """DeepSpeed counts them as with fp16, and any CPU computes in bf16."""
    zero = {"stage": 1, "reduce_bucket_size": 1_000_000}
    config = {**CONFIG, "zero_optimization": zero, "bf16": {"enabled": True, "check_grad_overflow": True}}
    outcome = run("diverges", config=config, must_be_sound=True)
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.reason == "overflow"
    assert "the optimizer skipped" in outcome.message


@pytest.mark.slow
def test_a_loss_of_nan_is_seen_and_refused_only_where_the_users_own_run_is_better(run: Run) -> None:
    outcome = run("diverges")
    assert isinstance(outcome, Measured), outcome
    assert outcome.nonfinite == tuple(range(2, len(outcome.step_seconds)))
    assert outcome.skipped == ()
    assert outcome.nonfinite_share == 1
    candidate = run("diverges", must_be_sound=True)
    assert isinstance(candidate, Infeasible), candidate
    assert candidate.reason == "nonfinite_loss"


def test_a_run_is_cancelled_at_once(run: Run) -> None:
    stop = threading.Event()
    threading.Timer(6, stop.set).start()
    started = time.monotonic()
    assert isinstance(run("hangs", stop=stop, by_launcher=True), Cancelled)
    assert time.monotonic() - started < 100  # it would hang for 600
