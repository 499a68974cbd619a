"""Time of one optimizer step of the whole cluster, without noise."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dsopt.simulated.chance import normal, seed_of
from dsopt.simulated.communication import (
    hidden_seconds,
    parameter_gather_seconds,
    reduction_seconds,
    update_gather_seconds,
)
from dsopt.simulated.memory import layer_bytes
from dsopt.simulated.model import Cluster, Device, Model, Traits
from dsopt.simulated.settings import Settings

_TILE = 128  # rows and columns of a matrix product that one processor computes
_NVME_BYTES_PER_SECOND = 3e9


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step, in the parts that DeepSpeed's own timers see, and outside of them."""

    forward: float
    backward: float
    optimizer: float
    outside: float

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.optimizer + self.outside


def step_time(seed: int, model: Model, cluster: Cluster, traits: Traits, settings: Settings) -> StepTime:
    """The step that all ranks take together: the slowest rank's computation, and what communication is not hidden."""
    slowest = _slowest(seed, settings.ranks, settings.nodes, traits.gpu_spread, traits.node_spread)
    forward, backward = (slowest * part for part in _compute(model, cluster.device, traits, settings))
    hooks = model.layers * traits.hook_seconds[settings.stage] * (1.0 if settings.ranks > 1 else 0.5)
    gather_forward, gather_backward = parameter_gather_seconds(model, cluster, traits, settings)
    stream = _parameter_stream(model, cluster, settings)
    forward = _beside(traits, forward, gather_forward + stream, _prefetched(model, settings)) + hooks / 3
    reduction = reduction_seconds(model, cluster, traits, settings) + _gradient_stream(model, cluster, settings)
    quiet = _beside(traits, backward, gather_backward + stream, _prefetched(model, settings)) + hooks * 2 / 3
    last = quiet + _exposed(model, traits, settings, backward, reduction)
    reducing_passes = settings.gas if settings.stage >= 2 else 1
    update = _update(model, cluster, traits, settings, slowest)
    update += update_gather_seconds(model, cluster, traits, settings)
    odd = 1 + traits.idiosyncrasy * _oddness(seed, settings)
    data = traits.data_seconds_per_sample * settings.micro_batch * settings.gas
    return StepTime(
        forward=odd * settings.gas * forward,
        backward=odd * (reducing_passes * last + (settings.gas - reducing_passes) * quiet),
        optimizer=odd * update,
        outside=odd * (data + traits.outside_seconds),
    )


def flops_per_step(model: Model, settings: Settings) -> float:
    """Operations of one rank in one optimizer step, recomputation not counted."""
    return 3 * settings.gas * _forward_flops(model, settings.micro_batch * model.sequence)


def _compute(model: Model, device: Device, traits: Traits, settings: Settings) -> tuple[float, float]:
    """Forward and backward pass of one micro-batch on a GPU of mean speed.

    A roofline of matrix products and element-wise kernels; the host launches them, and where it is slower than the
    device, that counts.
    """
    tokens = settings.micro_batch * model.sequence
    rate = device.flops_per_second(settings.dtype) * efficiency(model, device, traits, settings.micro_batch)
    products = _forward_flops(model, tokens) / rate
    moved = traits.traffic * layer_bytes(model, traits, settings, tokens) * model.layers
    elementwise = moved / 3 / device.memory_bytes_per_second
    forward = products + elementwise
    is_lora = model.trainable_params < model.params
    backward = (1.15 if is_lora else 2.0) * products + 2 * elementwise
    launches = model.layers * traits.launch_seconds * (1.4 if is_lora else 1.0)
    if model.is_checkpointing:
        backward += forward
        launches *= 4 / 3
        if settings.cpu_checkpointing:
            moved_out = model.layers * tokens * model.hidden * settings.element_bytes / device.pcie_bytes_per_second
            forward, backward = forward + 0.5 * moved_out, backward + 0.5 * moved_out
    return _slower_of(forward, launches / 3), _slower_of(backward, launches * 2 / 3)


def efficiency(model: Model, device: Device, traits: Traits, micro_batch: int) -> float:
    """Share of the peak that matrix products of one micro-batch reach.

    It saturates in the tokens. Whole waves of tiles are best (a wave is one tile for each processor). Sizes that are
    not a multiple of 8 lose a little, small ones more. Very large ones fall off.
    """
    tokens = micro_batch * model.sequence
    half = traits.half_tokens * math.sqrt(2048 / model.hidden)
    saturated = traits.efficiency * tokens / (tokens + half)
    rows = math.ceil(tokens / _TILE)
    waves = 0.0
    widths = (model.hidden, model.hidden, 3 * model.hidden, model.intermediate)
    for width in widths:
        tiles = rows * math.ceil(width / _TILE)
        waves += tiles / (device.processors * math.ceil(tiles / device.processors)) / len(widths)
    divisor = math.gcd(micro_batch, 8)
    misaligned = {8: 0.0, 4: 0.3, 2: 0.6, 1: 1.0}[divisor] * traits.alignment_loss * (1 + 8 / (8 + micro_batch))
    beyond = max(0.0, math.log2(tokens / traits.falloff_tokens)) * traits.falloff
    return saturated * (0.8 + 0.2 * waves) * (1 - misaligned) * (1 - min(beyond, 0.2))


def _forward_flops(model: Model, tokens: float) -> float:
    body = 2 * model.layer_params * model.layers + 4 * model.layers * model.sequence * model.hidden
    head = 2 * model.hidden * model.vocab if model.has_logits else 0
    return tokens * (body + head)


def _slower_of(device: float, host: float) -> float:
    """The device runs behind the host: the slower of the two counts, and near equality both do."""
    return math.pow(device**4 + host**4, 0.25)


def _prefetched(model: Model, settings: Settings) -> float:
    """Share of ZeRO 3's gathering that may hide: what is fetched ahead of its use."""
    if not settings.is_overlapping:
        return 0.0
    return settings.prefetch_bucket / (settings.prefetch_bucket + 0.3 * model.layer_params)


def _beside(traits: Traits, compute: float, transfer: float, share: float) -> float:
    """A pass that waits for what it could not fetch ahead."""
    hidden = share * hidden_seconds(traits, transfer, compute)
    return compute + transfer - hidden + traits.contention * hidden


def _exposed(model: Model, traits: Traits, settings: Settings, backward: float, reduction: float) -> float:
    """What the reduction of gradients adds to a backward pass.

    It begins when the first bucket is full, so that a bucket as large as the model hides nothing.
    """
    if not settings.is_overlapping:
        return reduction
    filling = min(1.0, settings.reduce_bucket / model.trainable_params)
    hidden = hidden_seconds(traits, reduction * (1 - 0.5 * filling), backward * (1 - filling))
    return reduction - hidden + traits.contention * hidden


def _update(model: Model, cluster: Cluster, traits: Traits, settings: Settings, slowest: float) -> float:
    """Adam on this rank's share: bound by memory bandwidth, or by the host's."""
    share = model.trainable_params / (settings.ranks if settings.stage >= 1 else 1)
    moved = 34 if settings.dtype != "fp32" else 28
    rate = 0.75 * cluster.device.memory_bytes_per_second
    kept = settings.optimizer_ratio if settings.optimizer_device != "none" else 0.0
    seconds = slowest * share * (1 - kept) * moved / rate + traits.optimizer_seconds
    copies = 2 * model.trainable_params * settings.element_bytes / rate  # norm, overflow check, flattening
    seconds += copies / (settings.ranks if settings.stage >= 2 else 1)
    if settings.is_contiguous and settings.stage >= 1:
        seconds += 2 * model.trainable_params * settings.element_bytes / rate
    if kept:
        local = share * kept * settings.ranks_per_node
        seconds += local / traits.host_adam_params_per_second
        seconds += share * kept * settings.element_bytes / _host_link(cluster, settings, settings.optimizer_pinned)
        if settings.optimizer_device == "nvme":
            seconds += 24 * local / _NVME_BYTES_PER_SECOND
    return seconds


def _gradient_stream(model: Model, cluster: Cluster, settings: Settings) -> float:
    """Gradients on their way to the host, where the optimizer is there."""
    if settings.optimizer_device == "none":
        return 0.0
    size = model.trainable_params * settings.element_bytes / settings.ranks * settings.optimizer_ratio
    return size / _host_link(cluster, settings, settings.optimizer_pinned)


def _parameter_stream(model: Model, cluster: Cluster, settings: Settings) -> float:
    """Parameters on their way from the host or a disk, in one pass."""
    if settings.param_device == "none":
        return 0.0
    size = model.params * settings.element_bytes / settings.ranks
    seconds = size / _host_link(cluster, settings, settings.param_pinned)
    return seconds + (size * settings.ranks_per_node / _NVME_BYTES_PER_SECOND if settings.param_device == "nvme" else 0)


def _host_link(cluster: Cluster, settings: Settings, is_pinned: bool) -> float:
    """Bytes per second between a GPU and the host; neighbours share links, and pageable memory is copied twice."""
    shared = 1 / (1 + 0.1 * (settings.ranks_per_node - 1))
    return cluster.device.pcie_bytes_per_second * shared * (1.0 if is_pinned else 0.45)


def _oddness(seed: int, settings: Settings) -> float:
    """What no smooth model explains, about a standard normal number for each setting.

    Part belongs to the micro-batch size (choice of kernels), part to everything else, part to both together.
    """
    others = replace(settings, micro_batch=1)
    sizes = normal("size", seed, settings.micro_batch, settings.dtype)
    return 0.7 * sizes + 0.55 * normal("knobs", seed, others) + 0.45 * normal("both", seed, settings)


@lru_cache(maxsize=512)
def _slowest(seed: int, ranks: int, nodes: int, gpu_spread: float, node_spread: float) -> float:
    """How much longer the slowest rank computes than one of mean speed."""
    local = -(-ranks // nodes)
    random = np.random.default_rng(seed_of("speeds", seed))
    speeds = 1 + node_spread * random.standard_normal((nodes, 1)) + gpu_spread * random.standard_normal((nodes, local))
    return float(1 / np.clip(speeds, 0.7, 1.3).min())
