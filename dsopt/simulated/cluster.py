"""A training run on a simulated cluster: what it would use, how long its steps would take, and with what noise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsopt.simulated.chance import normal, seed_of, step_factors
from dsopt.simulated.memory import memory_use
from dsopt.simulated.model import Cluster, Model, Traits
from dsopt.simulated.settings import Settings, read_settings
from dsopt.simulated.timing import flops_per_step, step_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One training job on one cluster.

    Attributes:
        seed: of everything that is chance about it.
        noise: coefficient of variation of a step's time.
        max_train_batch_size: the largest global batch that its user allows, or None.
        baseline: the DeepSpeed configuration that its user has now.
    """

    name: str
    seed: int
    model: Model
    cluster: Cluster
    noise: float
    max_train_batch_size: int | None
    baseline: Mapping[str, Any]
    traits: Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One simulated launch.

    Attributes:
        oom: why it ran out of memory, or None.
        peak_allocated_bytes, peak_reserved_bytes, activation_bytes: of the worst rank, as torch counts them.
        outside_bytes: in use on its device beside them.
        flops_per_step: of one rank.
        samples_per_step: of the whole job.
        true_step_seconds: the mean of a step over very many launches, without the warm-up.
        forward_seconds, backward_seconds, optimizer_seconds: of a step, as DeepSpeed's own timers see them; what is
            missing to `true_step_seconds` is data loading and what else is outside of them.
        start_seconds: from the start of the ranks to the first step.
        step_seconds: shape (steps,), with warm-up and noise; (0,) when it ran out of memory.
    """

    oom: str | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    activation_bytes: int
    outside_bytes: int
    flops_per_step: float
    samples_per_step: int
    true_step_seconds: float
    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    start_seconds: float
    step_seconds: NDArray[np.float64]


def run(
    scenario: Scenario,
    ds_config: Mapping[str, Any],
    *,
    launch: int,
    steps: int = 400,
    ranks: int | None = None,
    nodes: int | None = None,
) -> Run:
    """Launches a configuration with concrete values; the same arguments give the same run.

    Args:
        scenario: the job.
        ds_config: DeepSpeed's configuration.
        launch: number of the launch; launches of one configuration differ by noise alone.
        steps: how many optimizer steps it does.
        ranks, nodes: of this run, where they are not all of the cluster's.
    """
    settings = settings_of(scenario, ds_config, ranks, nodes)
    traits = scenario.traits
    use = memory_use(scenario.seed, scenario.model, scenario.cluster, traits, settings)
    time = step_time(scenario.seed, scenario.model, scenario.cluster, traits, settings)
    seed = seed_of("launch", scenario.seed, settings, launch)
    if use.oom is None and steps:
        common = 1 + traits.launch_spread * normal("launch", seed)
        factors = step_factors(
            seed, steps, noise=scenario.noise, correlation=traits.correlation, seconds=time.total, gas=settings.gas
        )
        step_seconds = time.total * common * factors
    else:
        step_seconds = np.empty(0)
    return Run(
        oom=use.oom,
        peak_allocated_bytes=use.allocated,
        peak_reserved_bytes=use.reserved,
        activation_bytes=use.activations,
        outside_bytes=use.outside,
        flops_per_step=flops_per_step(scenario.model, settings),
        samples_per_step=settings.micro_batch * settings.gas * settings.ranks,
        true_step_seconds=time.total,
        forward_seconds=time.forward,
        backward_seconds=time.backward,
        optimizer_seconds=time.optimizer,
        start_seconds=traits.start_seconds * (1 + 0.05 * normal("start", seed)),
        step_seconds=step_seconds,
    )


def true_throughput(
    scenario: Scenario, ds_config: Mapping[str, Any], *, ranks: int | None = None, nodes: int | None = None
) -> float | None:
    """Samples per second of the whole job over very many launches; None when it runs out of memory."""
    settings = settings_of(scenario, ds_config, ranks, nodes)
    if memory_use(scenario.seed, scenario.model, scenario.cluster, scenario.traits, settings).oom is not None:
        return None
    seconds = step_time(scenario.seed, scenario.model, scenario.cluster, scenario.traits, settings).total
    return settings.micro_batch * settings.gas * settings.ranks / seconds


def settings_of(scenario: Scenario, ds_config: Mapping[str, Any], ranks: int | None, nodes: int | None) -> Settings:
    """What a configuration says for a run on this many ranks and nodes of the scenario's, or on all of them."""
    count = ranks or (nodes or scenario.cluster.nodes) * scenario.cluster.gpus_per_node
    spread = nodes or math.ceil(count / scenario.cluster.gpus_per_node)
    return read_settings(ds_config, scenario.model, ranks=count, nodes=spread)
