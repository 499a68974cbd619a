"""Time of collectives: bandwidth within and between nodes, latency of messages, what the backward pass hides."""

import math

from dsopt.simulated.model import Cluster, Model, Traits
from dsopt.simulated.settings import Settings


def collective_seconds(cluster: Cluster, traits: Traits, settings: Settings, size: float, messages: float) -> float:
    """One pass over `size` bytes (a reduce-scatter or an all-gather; an all-reduce is two) in this many messages.

    It runs within a node and between nodes at the same time, as hierarchical rings do, but not perfectly.
    """
    ranks, nodes, local = settings.ranks, settings.nodes, settings.ranks_per_node
    if ranks == 1 or size <= 0:
        return 0.0
    messages = max(1.0, messages)
    message = size / messages
    filled = message / (message + traits.half_message_bytes * math.sqrt(ranks / 8))
    congestion = 1 + traits.congestion * math.log2(nodes)
    within = size * (local - 1) / local / cluster.intra_bytes_per_second
    between = size * (nodes - 1) / nodes / cluster.inter_bytes_per_second * congestion
    latency = traits.intra_latency_seconds * (1 + math.log2(local)) + traits.inter_latency_seconds * math.log2(nodes)
    return (max(within, between) + 0.3 * min(within, between)) / filled + messages * latency


def reduction_seconds(model: Model, cluster: Cluster, traits: Traits, settings: Settings) -> float:
    """Bringing the gradients of one backward pass together, were nothing hidden."""
    size = model.trainable_params * settings.element_bytes
    messages = math.ceil(model.trainable_params / min(settings.reduce_bucket, model.trainable_params))
    if settings.stage == 3:
        messages = max(messages, model.layers // 4)
    seconds = collective_seconds(cluster, traits, settings, size, messages)
    # ZeRO 0, and ZeRO 1 and 2 without reduce_scatter, have the whole sum on every rank
    return 2 * seconds if settings.stage == 0 or not settings.is_reduce_scatter else seconds


def update_gather_seconds(model: Model, cluster: Cluster, traits: Traits, settings: Settings) -> float:
    """All-gather of the updated parameters after the step of ZeRO 1 and 2, which nothing hides."""
    if settings.stage not in (1, 2):
        return 0.0
    size = model.trainable_params * settings.element_bytes
    messages = math.ceil(model.trainable_params / min(settings.allgather_bucket, model.trainable_params))
    if settings.is_allgather:
        return collective_seconds(cluster, traits, settings, size, messages)
    return 1.3 * collective_seconds(cluster, traits, settings, size, messages * min(settings.ranks, 64))


def parameter_gather_seconds(model: Model, cluster: Cluster, traits: Traits, settings: Settings) -> tuple[float, float]:
    """What ZeRO 3 gathers in one forward and one backward pass, were nothing hidden.

    Parameters that are used again soon stay gathered between the two (`max_live_parameters`, `max_reuse_distance`).
    """
    if settings.stage < 3:
        return 0.0, 0.0
    kept = min(model.params, settings.max_live, settings.max_reuse / 2)
    fetch = max(settings.prefetch_bucket, model.layer_params)
    forward, backward = (
        collective_seconds(cluster, traits, settings, elements * settings.element_bytes, math.ceil(elements / fetch))
        for elements in (model.params, model.params - kept)
    )
    return forward, backward


def hidden_seconds(traits: Traits, work: float, window: float) -> float:
    """How much of `work` hides in a window of computation: less than either, and ever less of what is added."""
    if work <= 0 or window <= 0:
        return 0.0
    return traits.overlap * work * window / math.pow(work**3 + window**3, 1 / 3)
