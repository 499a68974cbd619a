"""What may be tried on a machine: the candidates that the samplers choose among and the oracle goes through."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.search.machine import DsConfig, Machine, concrete, configured
from dsopt.study.ds_config import offload_devices, user_zero
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, OFFLOADS, STAGES, Candidate, StageSpace, stage_space
from dsopt.study.zero_stages import least_stage

_LARGEST_MICRO_BATCH = 1024  # DeepSpeed's default of `max_train_micro_batch_size_per_gpu`


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The candidates of one machine.

    Attributes:
        base: the user's own configuration, which candidates change.
        stages: knobs of each ZeRO stage that can have the user's offload.
        smallest: of each stage the smallest micro-batch size: the user's; 1 where no such runs, and beside flags.
        limit: largest micro-batch size. No larger one runs at any stage with any knobs; a person would not know it, so
            it helps whoever samples blindly.
        samples_per_rank: most samples a rank and optimizer step, or None.
        accumulations: those to try, or none (see `gases`).
    """

    base: DsConfig
    stages: tuple[StageSpace, ...]
    smallest: Mapping[int, int]
    limit: int
    samples_per_rank: int | None
    accumulations: tuple[int, ...]

    @classmethod
    def of(cls, machine: Machine, *, fast: bool) -> "Space":
        """The space of a machine; with `fast` without DeepSpeed's documented knobs."""
        base = concrete(machine.baseline)
        total = machine.max_train_batch_size
        samples = None if total is None else max(1, total // machine.facts.ranks)
        gas = 1 if machine.accumulations else base.get(ACCUMULATION, 1)
        offloads = zip(OFFLOADS, offload_devices(base), strict=True)
        lowest = max(0 if to == "none" else least_stage(section, "device", to) for section, to in offloads)
        stages = tuple(
            stage_space(stage, fast=fast, user_zero=user_zero(base), further=machine.flags) for stage in STAGES[lowest:]
        )
        most = min(_LARGEST_MICRO_BATCH, max(1, samples // gas) if samples else _LARGEST_MICRO_BATCH)
        own = base[MICRO_BATCH]
        largest = {space.stage: _largest_that_runs(machine, base, space, most) for space in stages}
        return cls(
            base=base,
            stages=stages,
            smallest={stage: own if size >= own and not machine.flags else 1 for stage, size in largest.items()},
            limit=max(largest.values()),
            samples_per_rank=samples,
            accumulations=machine.accumulations,
        )

    @property
    def own(self) -> Candidate:
        """The user's own configuration as a candidate, as far as it is one: with the first value of every knob."""
        stage = int(self.base.get("zero_optimization", {}).get("stage", 0))
        knobs = next(space for space in self.stages if space.stage == stage).settings()[0]
        return Candidate(stage=stage, micro_batch=self.base[MICRO_BATCH], gas=self.own_gas, knobs=knobs)

    @property
    def own_gas(self) -> int:
        """The user's accumulation."""
        gas = self.base.get(ACCUMULATION, 1)
        assert isinstance(gas, int)
        return gas

    def gases(self, micro_batch: int) -> tuple[int, ...]:
        """The accumulations to try with a micro-batch size: those of the machine that the largest batch allows.

        Where it names none, the user's, and if that is the usual one, the one that fills the largest batch: who
        accumulates fixes it.
        """
        if self.accumulations:
            most = self.samples_per_rank or math.inf
            return tuple(gas for gas in self.accumulations if gas * micro_batch <= most) or self.accumulations[:1]
        if self.samples_per_rank is None or self.own_gas > 1:
            return (self.own_gas,)
        return tuple(sorted({1, max(1, self.samples_per_rank // micro_batch)}))

    def config(self, candidate: Candidate) -> DsConfig:
        """What a candidate runs with."""
        return configured(self.base, candidate)

    def random(self, random: np.random.Generator) -> Candidate:
        """One of them by chance: first the stage, then the size, then the rest."""
        space = self.stages[random.integers(len(self.stages))]
        size = int(random.integers(self.smallest[space.stage], self.limit + 1))
        choices = space.candidates([size], self.gases(size))
        return choices[random.integers(len(choices))]

    def candidates(self) -> Iterator[Candidate]:
        """All of them."""
        for space in self.stages:
            for micro_batch in range(self.smallest[space.stage], self.limit + 1):
                yield from space.candidates([micro_batch], self.gases(micro_batch))


def _largest_that_runs(machine: Machine, base: DsConfig, space: StageSpace, most: int) -> int:
    """The largest micro-batch size that runs at a stage, by doubling and halving; at least 1."""
    least_gas = min(machine.accumulations, default=base.get(ACCUMULATION, 1))

    def runs(size: int) -> bool:
        return any(
            machine.true_throughput(configured(base, candidate)) is not None
            for candidate in space.candidates([size], [least_gas])
        )

    low, high = 1, 2
    while high <= most and runs(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return low
