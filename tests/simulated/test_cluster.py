"""The simulated cluster: what is true of every scenario."""

import time

import numpy as np
import pytest

from benchmarks.scenarios.families import DEVELOPMENT_SEEDS, draw
from dsopt.simulated.chance import step_factors
from dsopt.simulated.cluster import Scenario, run, settings_of, true_throughput
from dsopt.simulated.memory import state_bytes
from dsopt.simulated.settings import read_settings

SEEDS = DEVELOPMENT_SEEDS[:60]
HALVES = ("fp16", "bf16")


def config(scenario: Scenario, micro_batch: int, stage: int | None = None, **knobs: object) -> dict:
    zero = {**scenario.baseline["zero_optimization"], **({} if stage is None else {"stage": stage}), **knobs}
    return {**scenario.baseline, "train_micro_batch_size_per_gpu": micro_batch, "zero_optimization": zero}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_baseline_runs_within_its_limits(seed):
    scenario = draw(seed, noise=0.02)
    result = run(scenario, scenario.baseline, launch=0, steps=0)
    assert result.oom is None
    assert result.peak_allocated_bytes <= result.peak_reserved_bytes < scenario.cluster.device.memory_bytes
    assert scenario.max_train_batch_size is None or result.samples_per_step <= scenario.max_train_batch_size


@pytest.mark.parametrize("seed", SEEDS[:20])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_memory_grows_with_the_micro_batch_and_what_is_too_much_stays_too_much(seed, stage):
    scenario = draw(seed, noise=0.02)
    runs = [run(scenario, config(scenario, size, stage), launch=0, steps=0) for size in range(1, 130)]
    ran_out = [r.oom is not None for r in runs]
    assert ran_out == sorted(ran_out)
    peaks = np.array([r.peak_allocated_bytes for r in runs if r.oom is None], dtype=float)
    assert np.all(np.diff(peaks) > -1.1 * scenario.traits.workspace_bytes)
    assert np.all(np.diff([r.activation_bytes for r in runs]) > 0)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4}, (4, 8)),
        ({"train_batch_size": 256, "gradient_accumulation_steps": 8}, (4, 8)),
        ({"train_batch_size": 256}, (32, 1)),
        ({"train_micro_batch_size_per_gpu": 4}, (4, 1)),
        ({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}, (4, 2)),
    ],
)
def test_sizes_mean_what_they_mean_to_deepspeed(sizes, expected):
    settings = read_settings(sizes, draw(1, noise=0.0).model, ranks=8, nodes=1)
    assert (settings.micro_batch, settings.gas) == expected


def test_the_same_question_has_the_same_answer():
    first, second = (
        run(draw(5, noise=0.1), draw(5, noise=0.1).baseline, launch=3).step_seconds.tolist() for _ in range(2)
    )
    assert first == second
    assert first != run(draw(5, noise=0.1), draw(5, noise=0.1).baseline, launch=4).step_seconds.tolist()


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_noise_is_as_asked_and_the_truth_is_its_mean(noise):
    scenario = draw(4, noise=noise)
    runs = [run(scenario, scenario.baseline, launch=launch) for launch in range(300)]
    relative = np.array([r.step_seconds for r in runs])[:, 50:] / runs[0].true_step_seconds
    assert relative.mean() == pytest.approx(1, abs=0.003)
    assert relative.std(axis=1).mean() == pytest.approx(noise, rel=0.1)
    assert 0.004 < relative.mean(axis=1).std() < 0.012
    warm_up = np.array([r.step_seconds[0] for r in runs]) / runs[0].true_step_seconds
    assert np.quantile(warm_up, 0.05) > 1.2 and warm_up.max() < 3.5


def test_a_long_step_adds_no_more_warm_up_than_a_short_one_and_accumulation_shares_it():
    scenario = draw(4, noise=0.02)

    def excess(gas: int) -> float:
        many = {**scenario.baseline, "gradient_accumulation_steps": gas}
        runs = [run(scenario, many, launch=launch) for launch in range(60)]
        return float(np.median([r.step_seconds[0] / r.true_step_seconds - 1 for r in runs]))

    assert 0 < excess(16) < excess(4) < excess(1)
    long = [step_factors(seed, 20, noise=0.0, correlation=0.0, seconds=60.0, gas=1)[0] for seed in range(60)]
    short = [step_factors(seed, 20, noise=0.0, correlation=0.0, seconds=0.2, gas=1)[0] for seed in range(60)]
    assert np.median(long) < 1.1 < np.median(short)


def test_states_in_bf16_are_as_large_as_in_fp16():
    """DeepSpeed accumulates gradients in bf16, too, unless it is told otherwise (`data_types.grad_accum_dtype`)."""
    scenario = next(s for s in (draw(seed, noise=0.02) for seed in SEEDS) if s.model.dtype == "bf16")
    model = scenario.model
    for stage in (0, 1, 2, 3):
        asked = config(scenario, 1, stage)
        halves = [{**{k: v for k, v in asked.items() if k != "bf16"}, name: {"enabled": True}} for name in HALVES]
        states = [state_bytes(model, settings_of(scenario, half, None, None)) for half in halves]
        assert states[0] == states[1]


def test_a_run_is_cheap():
    scenario = draw(4, noise=0.02)
    run(scenario, scenario.baseline, launch=0)
    started = time.process_time()
    for launch in range(200):
        run(scenario, scenario.baseline, launch=launch)
    assert (time.process_time() - started) / 200 < 3e-3
    started = time.process_time()
    for size in range(1, 201):
        true_throughput(scenario, config(scenario, size))
    assert (time.process_time() - started) / 200 < 1e-3
