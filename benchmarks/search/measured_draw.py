"""Draws machines that are made of published measurements: a second family, without the simulated cluster's formulas.

What a seed gives is a published job's curve of step time, its own curve of memory (or that of a job that trains all
parameters, by the size of the model), and published ratios between stages, each moved a little by chance. The rest is
wide on purpose: launches that differ by 0.3 to 5 %, activations that differ by stage, bend or jump.
"""

import math
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np

from benchmarks.measured.runs import Run
from benchmarks.measured.study import facts_of
from benchmarks.search.machine import Facts
from benchmarks.search.measured_machine import Chance, MeasuredMachine, Memory, Time
from benchmarks.search.published_curves import (
    Curve,
    Points,
    StageRatio,
    grows,
    memory_curves,
    once_shares,
    reserves,
    stage_ratios,
    time_curves,
)
from dsopt.study.space import ACCUMULATION, MICRO_BATCH

Four = tuple[float, float, float, float]
_SHARES: Final = {"bigscience": 0.25, "fms-acceleration": 0.3, "ms-swift": 0.1, "vtrain-single": 0.35}
_GIB: Final = 2**30
_TRIES: Final = 10_000
_LARGEST: Final = 1024  # what tuners consider
_PATIENCE_SECONDS: Final = 60.0  # for one step of the user's own
_WELL_INSIDE: Final = 0.8  # of the memory, for a person who does not want to run out of it
_STRANGE: Final = 0.35  # of the machines; each of three ways in which activations are no line


def draw_measured(seed: int, *, noise: float) -> MeasuredMachine:
    """The machine of a seed. Its baseline runs, with room to spare.

    Args:
        seed: any whole number.
        noise: coefficient of variation of a step's time, such as 0.02.
    """
    random = np.random.default_rng([seed, 0x5EC0])
    curve = _time_curve(random)
    for _ in range(_TRIES):
        machine = _without_baseline(random, curve, seed, noise)
        if machine is None or not all(_fills(machine, stage) for stage in range(4)):
            continue
        baseline = _baseline(random, machine)
        if baseline is not None:
            limit = _largest_batch(random, baseline, machine.facts.ranks)
            return replace(machine, baseline=baseline, max_train_batch_size=limit)
    raise AssertionError(f"no machine was found for seed {seed}")


def _without_baseline(random: np.random.Generator, curve: Curve, seed: int, noise: float) -> MeasuredMachine | None:
    scale = 2.0 ** random.integers(-2, 5)  # samples of the machine in a published one
    if curve.seconds[0][0] * scale < 1:
        return None
    peaks, stage, kind = curve.peaks, curve.run.stage, curve.run.memory_kind
    params = curve.run.params / curve.run.model_parallel
    if not grows(curve):
        other = _one_of(random, memory_curves())
        smaller = params / (other.run.params / other.run.model_parallel)
        peaks, stage = tuple((size, peak * smaller) for size, peak in other.peaks), other.run.stage
        kind = other.run.memory_kind
    seconds, peaks = _scaled(curve.seconds, scale), _scaled(peaks, scale)
    if peaks[0][0] < 1:
        return None
    facts = _facts(random, curve, peaks)
    is_whole = curve.run.trainable == curve.run.params
    per_sample = (facts_of(curve.run).flops_per_step or 0.0) / (curve.run.micro_batch * curve.run.gas)
    machine = MeasuredMachine(
        name=f"{curve.run.group}-{seed}",
        seed=seed,
        noise=noise,
        facts=facts,
        flops_per_sample=per_sample / scale,
        published_seconds=seconds,
        published_peaks=peaks,
        memory=_memory(random, stage, peaks[-1][0], facts, is_whole, counts_tensors=kind == "allocated"),
        time=_time(random, curve.run, is_whole),
        chance=_chance(random),
        baseline={},
        max_train_batch_size=None,
    )
    if grows(curve) and machine.true_throughput(_config(stage, int(peaks[-1][0]), 1)) is None:
        return None  # it ran, as published
    return machine


def _time_curve(random: np.random.Generator) -> Curve:
    """A job: first its source, so that one with many rows is not all there is."""
    source = str(random.choice(sorted(_SHARES), p=[_SHARES[name] for name in sorted(_SHARES)]))
    return _one_of(random, [curve for curve in time_curves() if curve.source == source])


def _scaled(points: Points, scale: float) -> Points:
    return tuple((size * scale, value) for size, value in points)


def _facts(random: np.random.Generator, curve: Curve, peaks: Points) -> Facts:
    """What a probe would tell. A rank holds its part of the model; a job on one GPU runs on several here."""
    run, told = curve.run, facts_of(curve.run)
    ranks = run.gpus // run.model_parallel
    if ranks < 2:
        ranks = int(random.choice([2, 4, 8]))
    per_node = math.gcd(ranks, 8)
    device = run.gpu_bytes or _GIB * int(random.choice([16, 24, 40]))
    return Facts(
        params=told.num_params // run.model_parallel,
        trainable_params=told.trainable_params // run.model_parallel,
        nodes=ranks // per_node,
        gpus_per_node=per_node,
        device_memory_bytes=device if device > peaks[0][1] else 80 * _GIB,
        dtype=run.dtype,
        num_layers=run.layers or None,
        hidden_size=run.hidden or None,
    )


def _memory(
    random: np.random.Generator, stage: int, largest: float, facts: Facts, is_whole: bool, *, counts_tensors: bool
) -> Memory:
    """What is drawn about memory. Half of what is in use beside tensors is the allocator's; the rest nobody needed.

    Where the published peak is of what was reserved or in use, it is in it already.
    """
    differs, bends, jumps = random.random(3) < _STRANGE
    dynamic = np.exp(random.uniform(-0.25, 0.25, 4) * differs)
    return Memory(
        stages=_stages(random, stage, "peak", is_whole),
        dynamic=_four(dynamic / dynamic[stage]),
        bend_from=largest * 2.0 ** random.uniform(-2, 1),
        bend=float(random.uniform(0.6, 1.8)) if bends else 1.0,
        jump_from=largest * 2.0 ** random.uniform(-2, 1),
        jump_bytes=float(random.uniform(0.02, 0.1)) * facts.device_memory_bytes * bool(jumps),
        block_bytes=2.0 ** random.uniform(21, 30),
        reserve=float(random.choice(reserves()) * 0.5 if counts_tensors else random.uniform(0.0, 0.05)),
        hard=float(random.uniform(0.05, 0.6)),
        activations=float(random.uniform(0.5, 1.0)),
        outside_bytes=float(random.uniform(0.4, 2.5)) * _GIB,
    )


def _time(random: np.random.Generator, run: Run, is_whole: bool) -> Time:
    return Time(
        stages=_stages(random, run.stage, "seconds", is_whole),
        constant=float(random.uniform(0.0, 1.0)),
        once=float(random.choice(once_shares(is_pipelined=run.pipeline > 1))) * 2.0 ** random.uniform(-1, 1),
        fading=float(random.uniform(0.6, 1.0)),
        uneven=float(random.uniform(0.0, 0.06)) * (random.random() < 0.5),
        bumps=float(random.uniform(0.0, 0.005)),
        inside=float(random.uniform(0.9, 0.995)),
        start_seconds=float(np.exp(random.uniform(math.log(8), math.log(60)))),
    )


def _chance(random: np.random.Generator) -> Chance:
    return Chance(
        correlation=float(random.uniform(0.0, 0.6)),
        shape=float(random.uniform(1.5, 10.0)),
        launch_spread=float(np.exp(random.uniform(math.log(0.003), math.log(0.05)))),
        first_seconds=float(np.exp(random.uniform(math.log(0.1), math.log(8.0)))),
        slow_steps=int(random.integers(0, 7)),
        slow=float(random.uniform(0.02, 0.4)),
    )


def _stages(random: np.random.Generator, published: int, figure: Literal["seconds", "peak"], is_whole: bool) -> Four:
    """A figure of stage 0 to 3 in that of the published stage.

    Half of the machines go from stage to stage by published ratios; the others go from 0 to 3 by one, with 1 and 2 in
    between. Adapters have few states to shard, so they have ratios of their own, which are known from 0 to 3 alone.
    """

    def ratio(low: int, high: int) -> float:
        pairs = [pair for pair in stage_ratios() if (pair.low, pair.high, pair.is_whole) == (low, high, is_whole)]
        told = [value for pair in pairs if (value := _of(pair, figure)) is not None]
        moved = 0.05 if figure == "peak" else 0.03
        return float(random.choice(told) * math.exp(moved * random.standard_normal()))

    if is_whole and random.random() < 0.5:
        levels = np.cumprod([1.0, ratio(0, 1), ratio(1, 2), ratio(2, 3)])
    else:
        between = np.sort(random.random(2))
        levels = ratio(0, 3) ** np.array([0.0, *between, 1.0])
    return _four(levels / levels[published])


def _of(pair: StageRatio, figure: Literal["seconds", "peak"]) -> float | None:
    return pair.seconds if figure == "seconds" else pair.peak


def _four(values: Any) -> Four:  # noqa: ANN401 - an array of four
    zero, one, two, three = map(float, values)
    return zero, one, two, three


def _one_of(random: np.random.Generator, curves: Any) -> Curve:  # noqa: ANN401 - a sequence of curves
    chosen: Curve = curves[random.integers(len(curves))]
    return chosen


def _fills(machine: MeasuredMachine, stage: int) -> bool:
    """Whether a device is too small for the largest size that tuners consider."""
    return machine.true_throughput(_config(stage, _LARGEST, 1)) is None


def _baseline(random: np.random.Generator, machine: MeasuredMachine) -> dict[str, Any] | None:
    """What a sane person would run: a stage that fits, a power of two well inside the memory."""
    habit = int(random.choice([0, 1, 2, 2, 2, 3, 3]))
    gas = int(random.choice([1, 1, 1, 2, 4]))
    caution = int(random.choice([0, 0, 1, 1, 2, 3]))
    room = _WELL_INSIDE * machine.facts.device_memory_bytes - machine.memory.outside_bytes
    for stage in range(habit, 4):
        fitting = [
            size
            for size in (2**power for power in range(11))
            if machine.bytes_at(stage, size)[1] < room and machine.step_seconds(stage, size, gas) < _PATIENCE_SECONDS
        ]
        if fitting:
            size = fitting[max(0, len(fitting) - 1 - caution)]
            dtype = machine.facts.dtype
            return {
                **_config(stage, size, gas),
                "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
                **({dtype: {"enabled": True}} if dtype != "fp32" else {}),
            }
    return None


def _config(stage: int, size: int, gas: int) -> dict[str, Any]:
    return {MICRO_BATCH: size, ACCUMULATION: gas, "zero_optimization": {"stage": stage}}


def _largest_batch(random: np.random.Generator, baseline: dict[str, Any], ranks: int) -> int | None:
    """A bound on the global batch, for two in five: some times the baseline's."""
    if random.random() < 0.6:
        return None
    return int(baseline[MICRO_BATCH] * baseline[ACCUMULATION] * ranks * random.choice([1, 2, 4, 8, 16]))
