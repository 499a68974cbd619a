"""Machines drawn from published measurements: what is published stays what it is, and the rest is wide."""

import dataclasses
import functools

import numpy as np
import pytest

from benchmarks.search.cases import DRAWN
from benchmarks.search.deepspeed_tuner import DeepSpeedTuner
from benchmarks.search.doubling_tuner import DoublingTuner
from benchmarks.search.dsopt_tuner import DsoptTuner
from benchmarks.search.machine import shown
from benchmarks.search.measured_draw import draw_measured
from benchmarks.search.measured_machine import MeasuredMachine
from benchmarks.search.oracle import oracle
from benchmarks.search.published_curves import memory_curves, once_shares, stage_ratios, time_curves
from benchmarks.search.space import Space

# DeepSpeed's autotuner leaves its files to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@functools.cache  # not on import: every test process collects this file
def machines():
    return [draw_measured(seed, noise=0.02) for seed in range(60)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.search.oracle._CACHE", tmp_path)


def config(stage: int, micro_batch: int, gas: int = 1) -> dict:
    return {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": gas,
        "zero_optimization": {"stage": stage},
    }


def plain(machine: MeasuredMachine) -> MeasuredMachine:
    """Without all that is drawn beside the curves, as the published stage has it."""
    ones = (1.0, 1.0, 1.0, 1.0)
    memory = dataclasses.replace(
        machine.memory, stages=ones, dynamic=ones, bend=1.0, jump_bytes=0.0, block_bytes=1.0, reserve=0.0
    )
    return dataclasses.replace(
        machine, noise=0.0, memory=memory, time=dataclasses.replace(machine.time, stages=ones, once=0.0)
    )


def test_curves_go_through_what_was_published():
    for machine in map(plain, machines()):
        for size, seconds in machine.published_seconds:
            if size.is_integer():
                assert machine.step_seconds(0, int(size), 3) == pytest.approx(3 * seconds)
        for size, peak in machine.published_peaks:
            if size.is_integer():
                assert machine.bytes_at(2, int(size))[0] == pytest.approx(peak, rel=1e-6)


def test_more_samples_take_longer_and_more_memory_beyond_what_was_published_too():
    for machine in machines():
        even = dataclasses.replace(machine, time=dataclasses.replace(machine.time, uneven=0.0, bumps=0.0))
        for stage in range(4):
            seconds = [even.step_seconds(stage, size, 1) for size in range(1, 257)]
            assert min(seconds) > 0
            assert seconds == sorted(seconds)
            peaks = [machine.bytes_at(stage, size) for size in range(1, 257)]
            assert peaks == sorted(peaks)
            assert peaks[0][0] > 0


def test_a_seed_gives_one_machine_and_a_launch_one_run():
    machine, again = (draw_measured(3, noise=0.1) for _ in range(2))
    assert repr(machine) == repr(again)
    one, same, other = (machine.run(machine.baseline, launch) for launch in (1, 1, 2))
    assert (one.step_seconds == same.step_seconds).all()
    assert (one.step_seconds != other.step_seconds).all()


@pytest.mark.parametrize("cases", ["measured", "recomputing"])
def test_nothing_is_developed_on_what_is_published(cases):
    assert not set(DRAWN[cases][0]) & set(DRAWN[f"{cases}-development"][0])


def test_launches_differ_by_no_more_than_noise_around_what_is_true():
    machine = dataclasses.replace(machines()[1], noise=0.1)
    truth = machine.step_seconds(*(machine.baseline["zero_optimization"]["stage"], *_sizes(machine)))
    means = [machine.run(machine.baseline, launch).step_seconds[10:].mean() for launch in range(200)]
    assert np.mean(means) == pytest.approx(truth, rel=0.01)
    spread = np.std(means) / truth
    assert 0.5 * machine.chance.launch_spread < spread < machine.chance.launch_spread + 0.02
    first = np.mean([machine.run(machine.baseline, launch).step_seconds[0] for launch in range(50)])
    assert first - truth > 0.5 * machine.chance.first_seconds


def _sizes(machine: MeasuredMachine) -> tuple[int, int]:
    return machine.baseline["train_micro_batch_size_per_gpu"], machine.baseline["gradient_accumulation_steps"]


def test_machines_are_wide():
    assert {machine.name.split("/")[0] for machine in machines()} >= {"fms", "bigscience", "vtrain-single", "swift"}
    assert {oracle(m, fast=True).config["zero_optimization"]["stage"] for m in machines()} == {0, 1, 2, 3}
    spreads = [machine.chance.launch_spread for machine in machines()]
    assert 0.003 <= min(spreads) < 0.006 < 0.03 < max(spreads) <= 0.05
    for is_strange in (
        lambda memory: len(set(memory.dynamic)) > 1,
        lambda memory: memory.bend != 1,
        lambda memory: memory.jump_bytes > 0,
    ):
        assert 0.2 < np.mean([is_strange(machine.memory) for machine in machines()]) < 0.5


def test_the_users_own_configuration_runs_and_every_size_that_tuners_consider_does_not():
    for machine in machines():
        assert machine.true_throughput(machine.baseline) is not None
        assert machine.run(machine.baseline, 0).oom is None
        for stage in range(4):
            assert machine.true_throughput(config(stage, 1024)) is None
            out = machine.run(config(stage, 1024), 0)
            assert "out of memory" in out.oom
            assert len(out.step_seconds) == 0


def test_no_tuner_that_keeps_to_the_space_beats_the_oracle():
    for machine in machines()[:4]:
        best = oracle(machine, fast=True)
        space = Space.of(machine, fast=True)
        assert best.throughput == max(
            value for c in space.candidates() if (value := machine.true_throughput(space.config(c))) is not None
        )
        for tuner in (DsoptTuner(), DoublingTuner()):
            record = tuner.tune(machine, seed=0)
            assert 0 < record.choice_true_throughput <= best.throughput


def test_deepspeeds_autotuner_runs_on_them():
    record = DeepSpeedTuner().tune(machines()[1], seed=0)
    assert record.error is None
    assert record.tried[0].phase == "profile"
    assert shown(record.choice) in {shown(tried.config) for tried in record.tried}


def test_published_rows_that_curves_and_ratios_are_made_of():
    """One number of each kind, read from the files by hand."""
    curve = next(c for c in time_curves() if c.run.group.endswith("tp8pp12/02-21-fp16"))
    assert curve.seconds[0] == (1, pytest.approx(143.31 / 512))
    assert [size for size, _ in curve.peaks] == [1, 2, 4, 8]
    assert all(curve.run.trainable == curve.run.params for curve in memory_curves())
    zero_to_one = [pair for pair in stage_ratios() if (pair.low, pair.high) == (0, 1)]
    assert [(pair.seconds, pair.peak) for pair in zero_to_one] == [
        (pytest.approx(134.02 / 137.34), pytest.approx(39728447488 / 77309411328))
    ]
    assert max(pair.seconds for pair in stage_ratios() if pair.seconds) < 1.5  # samples of other lengths are left out
    pipelined, alone = (once_shares(is_pipelined=is_pipelined) for is_pipelined in (True, False))
    assert 0 < min(alone) < max(alone) < 0.5 < max(pipelined)
