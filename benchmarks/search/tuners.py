"""The tuners that are put side by side."""

from typing import Protocol

from benchmarks.search.deepspeed_tuner import DeepSpeedTuner
from benchmarks.search.doubling_tuner import DoublingTuner
from benchmarks.search.dsopt_tuner import DsoptTuner
from benchmarks.search.machine import Machine
from benchmarks.search.optuna_tuners import OptunaTuner
from benchmarks.search.records import Record

# as many as DeepSpeed's autotuner launches for the larger published cases; a Gaussian process takes 0.3 s for each
OPTUNA_RUNS = 25


class Tuner(Protocol):
    """Tunes a machine from nothing.

    Attributes:
        name: as tables and plots show it.
    """

    @property
    def name(self) -> str: ...

    def tune(self, machine: Machine, seed: int) -> Record:
        """All that the tuner did; the same again for the same seed."""
        ...


def tuners(*, fast: bool) -> list[Tuner]:
    """All of them. With `fast`, the documented knobs are left out of the space."""
    return [
        DsoptTuner(fast=fast),
        DeepSpeedTuner(fast=fast),
        OptunaTuner(sampler="tpe", runs=OPTUNA_RUNS, fast=fast),
        OptunaTuner(sampler="gp", runs=OPTUNA_RUNS, fast=fast),
        OptunaTuner(sampler="random", runs=OPTUNA_RUNS, fast=fast),
        DoublingTuner(fast=fast),
    ]
