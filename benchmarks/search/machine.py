"""What every tuner is given to tune: a machine that runs configurations, simulated or recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol, TypeAlias

from dsopt.simulated.cluster import Run, Scenario, run, true_throughput
from dsopt.study.ds_config import candidate_config
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate, Knob, is_script_flag

DsConfig: TypeAlias = Mapping[str, Any]
Start = Literal["launcher", "direct", "warm"]

# Seconds beyond `Run.start_seconds`, by how ranks are started. The same two ranks and three steps, on the CPU: the
# `deepspeed` launcher 19.4 and 15.9 s, the ranks directly 7.5 and 6.5 s, forked from a process that had imported torch
# and deepspeed 2.9 s.
START_SECONDS: Final[Mapping[Start, float]] = {"launcher": 10.6, "direct": 0.0, "warm": -4.1}
# What no start comes below: building the model and the engine.
_LEAST_START_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a run's probe tells of model and devices before any search."""

    params: int
    trainable_params: int
    nodes: int
    gpus_per_node: int
    device_memory_bytes: int
    dtype: str
    num_layers: int | None = None
    hidden_size: int | None = None
    largest_layer_params: int = 0
    host_memory_bytes: int = 0

    @property
    def ranks(self) -> int:
        """Data-parallel ranks of the whole job."""
        return self.nodes * self.gpus_per_node


class Machine(Protocol):
    """Runs configurations.

    Attributes:
        name: the case's, one of a kind among those of a benchmark.
        facts: of model and devices.
        baseline: the user's own configuration, with concrete values.
        max_train_batch_size: largest global batch that is allowed, or None.
        accumulations: those to try; none where only the user's own, and what fills the largest batch, are.
        flags: of the script, with the values to try, the user's own first. In a configuration, each that is set is a
            key with its value.
        without_noise: the same machine, as far as what is true of it goes.
    """

    @property
    def name(self) -> str: ...
    @property
    def facts(self) -> Facts: ...
    @property
    def baseline(self) -> DsConfig: ...
    @property
    def max_train_batch_size(self) -> int | None: ...
    @property
    def accumulations(self) -> tuple[int, ...]: ...
    @property
    def flags(self) -> Mapping[str, tuple[Knob, ...]]: ...
    @property
    def without_noise(self) -> "Machine": ...

    def run(self, ds_config: DsConfig, launch: int) -> Run:
        """One launch; the same again for the same number."""
        ...

    def true_throughput(self, ds_config: DsConfig) -> float | None:
        """Samples per second of the whole job in the long run, without noise; None when it runs out of memory."""
        ...


@dataclass(frozen=True, slots=True)
class Simulated:
    """A scenario of the simulated cluster as a machine."""

    scenario: Scenario

    @property
    def name(self) -> str:
        return self.scenario.name

    @property
    def facts(self) -> Facts:
        model, cluster = self.scenario.model, self.scenario.cluster
        return Facts(
            params=model.params,
            trainable_params=model.trainable_params,
            nodes=cluster.nodes,
            gpus_per_node=cluster.gpus_per_node,
            device_memory_bytes=cluster.device.memory_bytes,
            dtype=next((name for name in ("fp16", "bf16") if name in self.scenario.baseline), model.dtype),
            num_layers=model.layers,
            hidden_size=model.hidden,
            largest_layer_params=model.largest_layer_params,
            host_memory_bytes=cluster.host_memory_bytes,
        )

    @property
    def baseline(self) -> DsConfig:
        return self.scenario.baseline

    @property
    def max_train_batch_size(self) -> int | None:
        return self.scenario.max_train_batch_size

    @property
    def accumulations(self) -> tuple[int, ...]:
        return ()

    @property
    def flags(self) -> Mapping[str, tuple[Knob, ...]]:
        return {}

    @property
    def without_noise(self) -> "Simulated":
        return Simulated(replace(self.scenario, noise=0.0))

    def run(self, ds_config: DsConfig, launch: int) -> Run:
        return run(self.scenario, ds_config, launch=launch)

    def true_throughput(self, ds_config: DsConfig) -> float | None:
        return true_throughput(self.scenario, ds_config)


def seconds_to_first_step(run: Run, start: Start, nodes: int) -> float:
    """Wall clock from asking for a run to its first step. Several nodes are charged the launcher."""
    beyond = START_SECONDS["launcher" if nodes > 1 else start]
    return max(run.start_seconds + beyond, _LEAST_START_SECONDS)


def concrete(ds_config: DsConfig) -> dict[str, Any]:
    """A configuration without what does not change a run: the tuner's section and the product of the batch sizes."""
    return {key: value for key, value in ds_config.items() if key not in ("autotuning", "train_batch_size")}


def without_flags(ds_config: DsConfig) -> dict[str, Any]:
    """What of a configuration DeepSpeed reads."""
    return {key: value for key, value in concrete(ds_config).items() if not is_script_flag(key)}


def configured(base: DsConfig, candidate: Candidate) -> DsConfig:
    """What a candidate runs with."""
    flags = {key: value for key, value in candidate.script_flags.items() if value is not None}
    return {**candidate_config(without_flags(base), candidate), **flags}


def shown(ds_config: DsConfig) -> str:
    """A configuration in short, as tables show it: stage, accumulation and micro-batch size, then what else is set."""
    zero = ds_config.get("zero_optimization", {})
    rest = "".join(f" {key}={_short(value)}" for key, value in sorted(zero.items()) if key != "stage")
    rest += "".join(f" {key}={_short(value)}" for key, value in sorted(ds_config.items()) if is_script_flag(key))
    return f"z{zero.get('stage', 0)}_gas{ds_config.get(ACCUMULATION, 1)}_tmbspg{ds_config[MICRO_BATCH]}{rest}"


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
