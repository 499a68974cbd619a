"""Simulated machines whose script can recompute activations: a flag to search, beside stages and sizes.

It saves most of the activations' memory and costs a third of the compute, so it decides which sizes fit: what one value
of the flag has shown of memory says little of the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.scenarios.families import draw
from benchmarks.search.machine import DsConfig, Simulated, without_flags
from dsopt.simulated.cluster import Run
from dsopt.study.space import Knob

_FLAG = "--gradient_checkpointing"


@dataclass(frozen=True, slots=True)
class Recomputing(Simulated):
    """A simulated machine; its scenario's model recomputes as the user's own command has it."""

    @property
    def name(self) -> str:
        return f"{self.scenario.name}-recomputing"

    @property
    def flags(self) -> Mapping[str, tuple[Knob, ...]]:
        return {_FLAG: ("", None) if self.scenario.model.is_checkpointing else (None, "")}

    @property
    def baseline(self) -> DsConfig:
        own = {_FLAG: ""} if self.scenario.model.is_checkpointing else {}
        return {**self.scenario.baseline, **own}

    @property
    def without_noise(self) -> "Recomputing":
        return Recomputing(replace(self.scenario, noise=0.0))

    def run(self, ds_config: DsConfig, launch: int) -> Run:
        return self._of(ds_config).run(without_flags(ds_config), launch)

    def true_throughput(self, ds_config: DsConfig) -> float | None:
        return self._of(ds_config).true_throughput(without_flags(ds_config))

    def _of(self, ds_config: DsConfig) -> Simulated:
        model = replace(self.scenario.model, is_checkpointing=_FLAG in ds_config)
        return Simulated(replace(self.scenario, model=model))


def draw_recomputing(seed: int, *, noise: float) -> Recomputing:
    """The machine of a seed: the scenario of that seed, with the flag to search."""
    return Recomputing(draw(seed, noise=noise))
