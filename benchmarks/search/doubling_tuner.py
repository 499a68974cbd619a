"""The loop that people write themselves: at each ZeRO stage, double the micro-batch size until memory is full."""

from dataclasses import dataclass, replace

from benchmarks.search.machine import Machine
from benchmarks.search.measuring import run_once
from benchmarks.search.records import Journal, Record
from benchmarks.search.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class DoublingTuner:
    """A tuner for `benchmarks.search`: it starts at the user's own size, and keeps the first value of every knob.

    It leaves a stage when a size runs out of memory or is no faster than the one before.
    """

    fast: bool = True
    name: str = "doubling script"

    def tune(self, machine: Machine, seed: int) -> Record:
        """Tunes a machine from nothing; the choice is the best measured."""
        space, journal = Space.of(machine, fast=self.fast), Journal(machine, self.name)
        best, choice, launch = 0.0, None, 1000 * seed
        for stage in space.stages:
            size, before = space.smallest[stage.stage], 0.0
            knobs = tuple((key, values[0]) for key, values in stage.knobs.items())
            while size <= space.limit:
                gas = space.gases(size)[0]
                candidate = replace(space.own, stage=stage.stage, micro_batch=size, gas=gas, knobs=knobs)
                value = run_once(machine, space.config(candidate), launch, journal)
                launch += 1
                if value is None or value <= before:
                    break
                if value > best:
                    best, choice = value, space.config(candidate)
                before, size = value, 2 * size
        return journal.close(choice)
