"""A machine whose step time and memory are curves through published points, not the formulas of a model.

`benchmarks.search.measured_draw` draws such machines. Between published sizes, time is a monotone curve through the
points in logarithms (PCHIP: Fritsch & Carlson, 1980), and memory one through the points as they are.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.special import gammaincinv, ndtr

from benchmarks.search.machine import DsConfig, Facts
from benchmarks.search.published_curves import Points
from dsopt.simulated.cluster import Run
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Knob

_STEPS: Final = 400
_BURN_IN: Final = 50
_DOUBLINGS: Final = 12  # that the curves go on for beyond what was published
_LEAST_BYTES: Final = 0.3  # of the smallest published peak, for a run without samples
_LEAST_STATIC: Final = 0.1  # of the published stage's, that sharding cannot take away


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is drawn about memory, by stage from 0 to 3.

    Attributes:
        stages: peak of the smallest published size, in that of the published stage.
        dynamic: what grows with the size, in that of the published stage.
        bend_from, bend: from this size on, more grows so many times as fast.
        jump_from, jump_bytes: from this size on, so much more is taken (another kernel, its workspace).
        block_bytes: what the allocator takes at once.
        reserve: share that the allocator takes beyond what tensors need.
        hard: part of that share that it cannot give back before it runs out.
        activations: share of what grows that a forward pass leaves.
        outside_bytes: of context and libraries.
    """

    stages: tuple[float, float, float, float]
    dynamic: tuple[float, float, float, float]
    bend_from: float
    bend: float
    jump_from: float
    jump_bytes: float
    block_bytes: float
    reserve: float
    hard: float
    activations: float
    outside_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """What is drawn about time.

    Attributes:
        stages: a micro-step of the smallest published size at stage 0 to 3, in that of the published stage.
        constant: part of a stage's difference that is the same for every size; the rest grows with the micro-step.
        once: what a step takes beside its micro-steps, in micro-steps of the smallest published size.
        fading: of each halving below the smallest published size: its slope in that of the one above.
        uneven: most that a size that is no multiple of eight costs.
        bumps: standard deviation of what a size costs by chance.
        inside: share of a step that DeepSpeed's timers see.
        start_seconds: from the start of the ranks to the first step.
    """

    stages: tuple[float, float, float, float]
    constant: float
    once: float
    fading: float
    uneven: float
    bumps: float
    inside: float
    start_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What is drawn about noise.

    Attributes:
        correlation: of one step's noise with the next one's.
        shape: of the gamma distribution of a step; the smaller, the more skewed.
        launch_spread: standard deviation of what a launch has in common.
        first_seconds: that the first step takes longer.
        slow_steps, slow: steps after it that are slow, and by what share of a step at most.
    """

    correlation: float
    shape: float
    launch_spread: float
    first_seconds: float
    slow_steps: int
    slow: float


@dataclass(frozen=True, kw_only=True)
class MeasuredMachine:
    """A machine for tuners.

    Attributes:
        seed: of everything that is chance about it.
        noise: coefficient of variation of a step.
        flops_per_sample: of one rank; 0 where the source says too little to know.
        published_seconds, published_peaks: micro-step and bytes of the published stage, by size.
    """

    name: str
    seed: int
    noise: float
    facts: Facts
    flops_per_sample: float
    published_seconds: Points
    published_peaks: Points
    memory: Memory
    time: Time
    chance: Chance
    baseline: DsConfig
    max_train_batch_size: int | None

    @property
    def accumulations(self) -> tuple[int, ...]:
        return ()

    @property
    def flags(self) -> Mapping[str, tuple[Knob, ...]]:
        return {}

    @property
    def without_noise(self) -> "MeasuredMachine":
        return replace(self, noise=0.0)

    def run(self, ds_config: DsConfig, launch: int) -> Run:
        """One launch of 400 steps."""
        stage, size, gas = _asked(ds_config)
        allocated, wanted, least = self.bytes_at(stage, size)
        capacity = self.facts.device_memory_bytes - self.memory.outside_bytes
        fits = least <= capacity
        seconds = self.step_seconds(stage, size, gas)
        random = np.random.default_rng([launch, self.seed, stage, size, gas])
        inside = self.time.inside * seconds
        once = min(0.4 * inside, self._once_seconds())
        return Run(
            oom=None if fits else f"CUDA out of memory. Tried to allocate {(least - capacity) / 2**30:.2f} GiB.",
            peak_allocated_bytes=int(allocated),
            peak_reserved_bytes=int(max(allocated, min(wanted, capacity))),
            activation_bytes=int(self.memory.activations * (allocated - self._static(stage))),
            outside_bytes=int(self.memory.outside_bytes),
            flops_per_step=self.flops_per_sample * size * gas,
            samples_per_step=size * gas * self.facts.ranks,
            true_step_seconds=seconds,
            forward_seconds=(inside - once) / 3,
            backward_seconds=2 * (inside - once) / 3,
            optimizer_seconds=once,
            start_seconds=self.time.start_seconds * random.uniform(0.9, 1.1),
            step_seconds=self._steps(random, seconds) if fits else np.empty(0),
        )

    def true_throughput(self, ds_config: DsConfig) -> float | None:
        """Samples per second of the whole job in the long run; None when it runs out of memory."""
        stage, size, gas = _asked(ds_config)
        if self.bytes_at(stage, size)[2] > self.facts.device_memory_bytes - self.memory.outside_bytes:
            return None
        return size * gas * self.facts.ranks / self.step_seconds(stage, size, gas)

    def step_seconds(self, stage: int, size: int, gas: int) -> float:
        """Mean of an optimizer step in the long run."""
        smallest = self.published_seconds[0][0]
        micro = self._micro_seconds(size)
        apart = (self.time.stages[stage] - 1) * (
            (1 - self.time.constant) * micro + self.time.constant * self._micro_seconds(min(size, smallest))
        )
        if stage < 2:  # communicates once a step, not with every micro-step
            return self._bump(size) * (gas * micro + apart) + self._once_seconds()
        return self._bump(size) * gas * (micro + apart) + self._once_seconds()

    def bytes_at(self, stage: int, size: int) -> tuple[float, float, float]:
        """What tensors take at the peak, what the allocator would take, and the least that it needs."""
        memory = self.memory
        grown = (self._peak_curve(size) - self._peak_curve(0)) * memory.dynamic[stage]
        bend_bytes = (self._peak_curve(memory.bend_from) - self._peak_curve(0)) * memory.dynamic[stage]
        grown += max(0.0, grown - bend_bytes) * (memory.bend - 1)
        grown = math.ceil(grown / memory.block_bytes) * memory.block_bytes
        allocated = self._static(stage) + grown + (memory.jump_bytes if size >= memory.jump_from else 0.0)
        reserved = memory.reserve * allocated
        return allocated, allocated + reserved, allocated + memory.hard * reserved

    def _static(self, stage: int) -> float:
        whole, smallest = self._peak_curve(0), self.published_peaks[0][1]
        return max(_LEAST_STATIC * whole, whole + (self.memory.stages[stage] - 1) * smallest)

    def _once_seconds(self) -> float:
        return self.time.once * self.published_seconds[0][1]

    def _bump(self, size: int) -> float:
        """What chance and the shape of its kernels cost a size; nothing where it was published."""
        if size in dict(self.published_seconds):
            return 1.0
        digest = hashlib.blake2b(f"{self.seed} {size}".encode(), digest_size=8).digest()
        draw = np.random.default_rng(int.from_bytes(digest, "big"))
        uneven = 0.0 if size % 8 == 0 else self.time.uneven * (0.3 if size % 2 == 0 else 1.0)
        return float((1 + uneven) * math.exp(self.time.bumps * max(-2.5, min(2.5, draw.standard_normal()))))

    def _micro_seconds(self, size: float) -> float:
        return math.exp(float(self._log_seconds(math.log2(size))))

    def _peak_curve(self, size: float) -> float:
        return float(self._peaks(size))

    @cached_property
    def _log_seconds(self) -> PchipInterpolator:
        """Beyond the last point, the slope comes half as near to 1 with each doubling; below the first, it fades."""
        places = [math.log2(size) for size, _ in self.published_seconds]
        values = [math.log(seconds) for _, seconds in self.published_seconds]
        slopes = np.diff(values) / np.diff(places) / math.log(2)
        first, last = float(slopes[0]), float(slopes[-1])
        for _ in range(_DOUBLINGS):
            first, last = first * self.time.fading, 1 - (1 - last) / 2
            places = [places[0] - 1, *places, places[-1] + 1]
            values = [values[0] - first * math.log(2), *values, values[-1] + last * math.log(2)]
        return PchipInterpolator(places, values)

    @cached_property
    def _peaks(self) -> PchipInterpolator:
        """Straight on beyond the last point; below the first, straight down to what there is without samples."""
        sizes = [float(size) for size, _ in self.published_peaks]
        peaks = [peak for _, peak in self.published_peaks]
        slopes = np.diff(peaks) / np.diff(sizes)
        none = max(_LEAST_BYTES * peaks[0], peaks[0] - float(slopes[0]) * sizes[0])
        for _ in range(_DOUBLINGS):
            peaks.append(peaks[-1] + float(slopes[-1]) * sizes[-1])
            sizes.append(2 * sizes[-1])
        return PchipInterpolator([0.0, *sizes], [none, *peaks])

    def _steps(self, random: np.random.Generator, seconds: float) -> NDArray[np.float64]:
        """Correlated steps of a gamma distribution, the first of them long and a few more slow; shape (400,)."""
        chance = self.chance
        whites = random.standard_normal(_STEPS + _BURN_IN) * math.sqrt(1 - chance.correlation**2)
        normal = np.zeros(len(whites))
        for index in range(1, len(whites)):
            normal[index] = chance.correlation * normal[index - 1] + whites[index]
        gamma = gammaincinv(chance.shape, ndtr(normal[_BURN_IN:]))
        factors = 1 + self.noise * (gamma - chance.shape) / math.sqrt(chance.shape)
        slow = random.integers(0, chance.slow_steps + 1)
        factors[1 : slow + 1] += random.uniform(0, chance.slow, slow)
        times = np.maximum(factors, 0.3) * seconds
        times[0] += chance.first_seconds * random.uniform(0.5, 1.5)
        common = 1 + chance.launch_spread * max(-2.5, min(2.5, float(random.standard_normal())))
        steps: NDArray[np.float64] = times * common
        return steps


def _asked(ds_config: DsConfig) -> tuple[int, int, int]:
    """Stage, micro-batch size and accumulation of a configuration; these machines know no other knobs."""
    zero = ds_config.get("zero_optimization")
    stage = int(zero.get("stage", 0)) if isinstance(zero, Mapping) else 0
    return stage, int(ds_config[MICRO_BATCH]), int(ds_config.get(ACCUMULATION, 1))
