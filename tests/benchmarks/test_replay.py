"""Grids: written, read back, and run as a machine."""

import dataclasses

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from benchmarks.grid import About, Grid, Launched, read_grid, write_grid
from benchmarks.replay import Recorded
from dsopt.study.space import Candidate

ABOUT = About(
    name="made-up",
    date="2026-01-01",
    versions={"torch": "2.13.0"},
    device="2 × cpu",
    command="deepspeed train.py",
    baseline={"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}},
    max_train_batch_size=None,
    nodes=1,
    ranks=2,
    params=1000,
    trainable_params=1000,
    memory_bytes=1100,
)


def launched(micro_batch: int, launch: int, *, gas: int = 1, oom: str | None = None) -> Launched:
    """A step takes gas × (1 + size / 4) s after two steps of warm-up, and 100 bytes a sample."""
    seconds = gas * (1 + micro_batch / 4) * (1 + 0.1 * (-1) ** launch)
    return Launched(
        candidate=Candidate(stage=0, micro_batch=micro_batch, gas=gas),
        launch=launch,
        oom=oom,
        elsewhere=0.0,
        start_seconds=5.0,
        step_seconds=() if oom else tuple(seconds * factor for factor in (4.0, 2.0, *[1.01, 0.99] * 11)),
        forward_seconds=0.3 * seconds,
        backward_seconds=0.5 * seconds,
        optimizer_seconds=0.1 * seconds,
        peak_allocated_bytes=100 * micro_batch,
        peak_reserved_bytes=100 * micro_batch,
        activation_bytes=10 * micro_batch,
        flops_per_step=1e6,
        samples_per_step=2 * gas * micro_batch,
    )


@pytest.fixture
def machine(tmp_path):
    launches = [launched(size, number, gas=gas) for size in (1, 2, 8) for gas in (1, 2) for number in (0, 1)]
    grid = Grid(about=ABOUT, launches=(*launches, launched(16, 0, oom="no memory")))
    write_grid(grid, tmp_path / "grid.parquet")
    return Recorded.read(tmp_path / "grid.parquet")


def test_a_grid_is_read_as_it_was_written(machine):
    about, first = machine.grid.about, machine.grid.launches[0]
    assert about == ABOUT
    assert first.candidate == Candidate(stage=0, micro_batch=1, gas=1)
    assert first.step_seconds == pytest.approx(launched(1, 0).step_seconds, rel=1e-6)
    assert machine.grid.launches[-1].oom == "no memory"


def test_another_parquet_file_is_refused(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="no grid"):
        read_grid(tmp_path / "other.parquet")


@pytest.mark.parametrize(
    ("micro_batch", "gas", "expected"),
    [
        (2, 1, 4 / 1.5),  # as recorded
        (5, 1, 10 / 2.25),  # between two sizes
        (10, 1, 20 / 3.5),  # beyond the last that ran, by its line
        (2, 3, 12 / 4.5),  # beyond the accumulations
        (12, 1, None),  # over the memory, by the line
        (16, 1, None),  # as recorded
        (17, 2, None),  # more than what ran out of memory
    ],
)
def test_candidates_beside_the_recorded_ones_lie_on_lines(machine, micro_batch, gas, expected):
    config = {"train_micro_batch_size_per_gpu": micro_batch, "gradient_accumulation_steps": gas}
    found = machine.true_throughput(config)
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-5))
    run = machine.run(config, launch=0)
    assert (run.oom is None) == (expected is not None)


def test_a_run_is_a_recorded_launch_resampled(machine):
    config = {"train_micro_batch_size_per_gpu": 8}
    slow, fast = machine.run(config, launch=0), machine.run(config, launch=1)
    assert np.array_equal(slow.step_seconds, machine.run(config, launch=0).step_seconds)
    assert slow.step_seconds[0] == pytest.approx(4 * 3.3, rel=1e-5)  # the warm-up as it was
    assert slow.step_seconds[20:].mean() == pytest.approx(3.3, rel=0.01)
    assert fast.step_seconds[20:].mean() == pytest.approx(2.7, rel=0.01)
    assert slow.true_step_seconds == pytest.approx(3.0, rel=1e-5)


def test_knobs_that_a_configuration_leaves_out_are_the_users_own_or_none(tmp_path):
    def at(device: str) -> Launched:
        key = "zero_optimization.offload_optimizer.device"
        candidate = Candidate(stage=2, micro_batch=1, gas=1, knobs=((key, device),))
        return dataclasses.replace(launched(1 if device == "none" else 4, 0), candidate=candidate)

    machine = Recorded(path=tmp_path, grid=Grid(about=ABOUT, launches=(at("none"), at("cpu"))))
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}
    offloaded = {**config, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    assert machine.run(config, launch=0).peak_reserved_bytes == 100
    assert machine.run(offloaded, launch=0).peak_reserved_bytes == 400


def test_a_stage_that_was_not_recorded_is_named(machine):
    with pytest.raises(KeyError, match="z3_gas1_tmbspg1"):
        machine.run({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}, launch=0)
