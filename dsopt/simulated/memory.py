"""Memory of one rank: model states, activations, buffers, and what the caching allocator adds.

States: ZeRO (Rajbhandari et al. 2020) as DeepSpeed carries it out. Activations: Korthikanti et al. 2022.
"""

import math
from dataclasses import dataclass
from typing import Final

from dsopt.simulated.chance import uniform
from dsopt.simulated.model import GIB, Cluster, Model, Traits
from dsopt.simulated.settings import Settings

_BLOCK: Final = 2 * 1024**2  # the caching allocator's segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Bytes of the worst rank, as torch would count them, and whether there were enough.

    Attributes:
        allocated, reserved: peaks.
        activations: what the forward pass of one micro-batch left allocated.
        outside: what is in use on the device and torch does not count.
        needed: the least that would have been enough, including what torch does not count.
        oom: why it ran out of memory, or None.
    """

    allocated: int
    reserved: int
    activations: int
    outside: int
    needed: int
    oom: str | None


def memory_use(seed: int, model: Model, cluster: Cluster, traits: Traits, settings: Settings) -> Use:
    """Peak memory of one run. Whether it fits is monotone in the micro-batch size; the counted peak need not be."""
    activations = activation_bytes(model, traits, settings, settings.micro_batch)
    least = _peak(model, traits, settings)
    workspace = _workspace(seed, traits, settings)
    kind = (seed, settings.stage, settings.is_contiguous, settings.optimizer_device, settings.param_device)
    share = traits.fragmentation * (0.6 + 0.8 * uniform("fragmentation", kind, settings.reduce_bucket))
    share += traits.stage_fragmentation[settings.stage]
    share += 0.015 * (settings.stage in (1, 2, 3) and not settings.is_contiguous)
    capacity = cluster.device.memory_bytes - _invisible(traits, settings)
    needed = least * (1 + traits.irreducible * share)
    worst_rank = 1 + 0.004 * uniform("rank", kind)
    oom = None
    if needed > capacity:
        oom = _message(cluster, capacity, least)
    elif settings.optimizer_device == "cpu" or settings.param_device == "cpu":
        host = host_bytes(model, settings)
        if host > 0.9 * cluster.host_memory_bytes:
            oom = f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {host:.0f} bytes."
    allocated = min((least + workspace) * worst_rank, capacity)
    irregular = share * (0.5 + uniform("size", kind, settings.micro_batch, settings.gas > 1))
    wanted = allocated * (1 + irregular)
    reserved = min(_blocks(_saturated(wanted, allocated, capacity)), int(capacity))
    return Use(
        allocated=int(min(allocated, reserved)),
        reserved=reserved,
        activations=int(activations),
        outside=int(_invisible(traits, settings)),
        needed=int(needed + _invisible(traits, settings)),
        oom=oom,
    )


def activation_bytes(model: Model, traits: Traits, settings: Settings, micro_batch: int) -> float:
    """What the forward pass of one micro-batch leaves allocated: each layer's activations, or its input alone."""
    tokens = micro_batch * model.sequence
    if model.is_checkpointing:
        inputs = model.layers * tokens * model.hidden * settings.element_bytes
        layers = inputs if not settings.cpu_checkpointing else 2 * inputs / model.layers
    else:
        layers = model.layers * layer_bytes(model, traits, settings, tokens)
    logits = tokens * model.vocab * (settings.element_bytes + 4) if model.has_logits else 0
    return layers + logits + tokens * model.hidden * settings.element_bytes


def layer_bytes(model: Model, traits: Traits, settings: Settings, tokens: float) -> float:
    """Activations of one layer: s·b·h·(34 + 5·a·s/h) for a plain layer of 16 bit, masks being one byte."""
    element, width = settings.element_bytes, model.intermediate / model.hidden
    matrices = element * (1 + (4 * width if model.is_gated else 2 * width)) + (0 if model.is_gated else 1)
    plain = 5 * element + 1 + 2 * element + matrices
    scores = 0.0 if model.is_flash else (2 * element + 1) * model.heads * model.sequence / model.hidden
    trained = 1.0 if model.trainable_params == model.params else 0.8  # inputs of frozen matrices are not kept
    return tokens * model.hidden * (plain * trained + scores) * traits.activation_factor


def state_bytes(model: Model, settings: Settings) -> tuple[float, float]:
    """Persistent model states on the device, and gradients that live from the backward pass to the step."""
    element, ranks = settings.element_bytes, settings.ranks
    trainable = _padded(model.trainable_params, ranks)
    stage, is_half = settings.stage, settings.dtype != "fp32"
    shard = trainable / ranks if stage >= 1 else trainable
    states = shard * (12 if is_half else 8 + 4 * (stage in (1, 2)))
    if settings.optimizer_device != "none":
        states *= 1 - settings.optimizer_ratio
    gradients = trainable * element / (ranks if stage >= 2 else 1)
    params: float = model.params * element
    if stage == 3:
        params = 0.0 if settings.param_device != "none" else params / ranks
        params += 13 * model.hidden * model.layers * element  # small parameters stay on every rank
        if settings.optimizer_device != "none":
            gradients = 0.0
    elif stage == 2 and settings.optimizer_device != "none":
        gradients = 0.0
    return params + states, gradients


def host_bytes(model: Model, settings: Settings) -> float:
    """Bytes of one node's memory that offloading takes."""
    share = settings.ranks_per_node / settings.ranks
    states = 16 * model.trainable_params * share * settings.optimizer_ratio * (settings.optimizer_device == "cpu")
    params = 2.0 * model.params * share * (settings.param_device == "cpu")
    return 1.2 * (states + params) + 4e9 * settings.ranks_per_node


def _peak(model: Model, traits: Traits, settings: Settings) -> float:
    """The largest of three: the backward pass begins, full of activations; it ends, full of gradients; the step."""
    persistent, gradients = state_bytes(model, settings)
    element = settings.element_bytes
    tokens = settings.micro_batch * model.sequence
    buffers = _buffers(model, settings)
    live = _live(model, settings)
    kept = gradients if settings.gas > 1 or traits.keeps_gradients else 0.0
    head = tokens * model.vocab * max(0.0, traits.logit_bytes - element - 4) if model.has_logits else 0.0
    transient = 3 * tokens * model.hidden * element
    recomputed = layer_bytes(model, traits, settings, tokens) if model.is_checkpointing else 0.0
    activations = activation_bytes(model, traits, settings, settings.micro_batch)
    first_gradients = model.vocab * model.hidden * element * (model.trainable_params == model.params)
    at_once = buffers if settings.stage >= 1 and settings.is_contiguous else 0.5 * buffers
    start = activations + max(head, transient + recomputed, first_gradients) + kept + at_once
    end = gradients + buffers + transient + recomputed
    step = gradients + _step_bytes(model, settings) + (at_once if settings.stage == 3 else 0.0)
    return persistent + max(max(start, end) + live, step)


def _buffers(model: Model, settings: Settings) -> float:
    """Buckets of the reduction. Where gradients are contiguous DeepSpeed allocates each whole, however small the model.

    ZeRO 3 has one, when training begins; ZeRO 1 and 2 make theirs with the first gradient, two where they overlap.
    """
    if settings.ranks == 1 and settings.stage == 0:
        return 0.0
    filled = min(model.trainable_params, settings.reduce_bucket)
    if settings.stage == 0:
        return filled * settings.element_bytes
    size = settings.reduce_bucket if settings.is_contiguous else filled
    is_double = settings.is_overlapping and not (settings.stage == 3 and settings.is_contiguous)
    return size * settings.element_bytes * (2 if is_double else 1)


def _live(model: Model, settings: Settings) -> float:
    """Parameters that ZeRO 3 holds gathered: those to be used again soon, those in use, those fetched ahead."""
    if settings.stage < 3:
        return 0.0
    again = min(model.params, settings.max_live, settings.max_reuse / 2)
    in_use = model.layer_params + model.largest_layer_params + min(settings.prefetch_bucket, model.params)
    return min(model.params, again + in_use) * settings.element_bytes


def _step_bytes(model: Model, settings: Settings) -> float:
    """Temporary bytes of an optimizer step: gradients in fp32, and what an all-gather flattens."""
    if settings.stage == 0:
        # FP16_Optimizer, which DeepSpeed takes for bf16 too, converts all gradients, and then flattens them
        return (4.0 if settings.dtype == "fp32" else 8.0) * model.trainable_params
    shard = model.trainable_params / settings.ranks * (settings.optimizer_device == "none")
    gathered = min(settings.allgather_bucket, model.trainable_params) * settings.element_bytes
    return shard * 4 + (gathered if settings.stage < 3 else 0)


def _workspace(seed: int, traits: Traits, settings: Settings) -> float:
    """What libraries take to be faster: they choose by shape, and jump from one size to the next."""
    fraction = uniform("workspace", seed, settings.micro_batch)
    return traits.workspace_bytes * (0.03 if fraction < 0.4 else 0.25 if fraction < 0.8 else 1.0)


def _invisible(traits: Traits, settings: Settings) -> float:
    """What torch's counters do not see: context, libraries, buffers of communication that grow with ranks."""
    return min(4 * GIB, traits.context_bytes + traits.rank_bytes * math.log2(settings.ranks))


def _saturated(wanted: float, allocated: float, capacity: float) -> float:
    """Near capacity the allocator gives cached blocks back, so that what it reserves bends towards capacity."""
    knee = 0.9 * capacity
    if wanted <= knee:
        return wanted
    room = capacity - knee
    return max(allocated, knee + room * (1 - math.exp(-(wanted - knee) / room)))


def _blocks(size: float) -> int:
    return math.ceil(size / _BLOCK) * _BLOCK


def _padded(count: int, ranks: int) -> int:
    """Elements, with the padding that lets every rank hold an equal, aligned part."""
    return -(-count // (2 * ranks)) * 2 * ranks


def _message(cluster: Cluster, capacity: float, least: float) -> str:
    short = max(_BLOCK, least - 0.97 * capacity)
    return (
        f"CUDA out of memory. Tried to allocate {short / GIB:.2f} GiB. "
        f"GPU 0 has a total capacity of {cluster.device.memory_bytes / GIB:.2f} GiB"
    )
