"""Draws what no data sheet says about a cluster and a training on it, with the spread that is usual in practice."""

import math
from typing import Final

import numpy as np

from dsopt.simulated.model import Cluster, Device, Model, Traits

_NVLINK: Final = {"V100-32GB": 120e9, "A100-40GB": 220e9, "A100-80GB": 225e9, "H100-80GB": 340e9, "H200-141GB": 350e9}
WORKSTATION: Final = ("RTX3090-24GB", "RTX4090-24GB", "A6000-48GB", "L4-24GB")


def draw_traits(random: np.random.Generator, model: Model, cluster: Cluster) -> Traits:
    """Draws what no data sheet says, with the spread that is usual in practice."""

    def about(middle: float, factor: float) -> float:
        """Within a factor of the middle, nearly always within its root."""
        return middle * math.pow(factor, float(np.clip(random.normal() / 2, -1, 1)))

    def up_to(most: float) -> float:
        return float(random.uniform(0.0, most))

    reached = {"fp32": 0.75}.get(model.dtype, 0.45 if cluster.device.half_flops_per_second > 5e14 else 0.55)
    host = about(1.0, 1.6)
    return Traits(
        efficiency=min(0.9, about(reached, 1.3)),
        half_tokens=about(700.0 * (cluster.device.processors / 100) ** 1.5, 2.5),
        alignment_loss=float(random.uniform(0.005, 0.04)),
        falloff=up_to(0.015),
        falloff_tokens=about(24000.0, 3.0),
        traffic=about(4.0, 1.5),
        launch_seconds=1.3e-3 * host,
        hook_seconds=(about(2e-5, 2.0), about(1e-4, 2.5) * host, about(2.5e-4, 2.5) * host, about(7e-4, 2.5) * host),
        activation_factor=about(1.2, 1.5),
        logit_bytes=float(random.choice([8.0, 10.0, 12.0, 14.0])),
        workspace_bytes=about(200e6, 3.0),
        fragmentation=float(random.uniform(0.02, 0.08)),
        irreducible=float(random.uniform(0.1, 0.4)),
        stage_fragmentation=(0.0, up_to(0.01), up_to(0.02), up_to(0.03)),
        keeps_gradients=bool(random.random() < 0.4),
        context_bytes=about(0.9e9, 1.7),
        rank_bytes=about(1.2e8, 2.5),
        overlap=float(random.uniform(0.55, 0.95)),
        contention=float(random.uniform(0.02, 0.12)),
        intra_latency_seconds=about(1.5e-5, 2.0),
        inter_latency_seconds=about(4e-5, 2.5),
        half_message_bytes=about(6e6, 2.5),
        congestion=float(random.uniform(0.01, 0.1)),
        optimizer_seconds=about(4e-3, 2.5) * host,
        host_adam_params_per_second=about(1.5e9, 2.0),
        data_seconds_per_sample=about(2e-5 * model.sequence / 512, 4.0),
        outside_seconds=about(3e-3, 3.0) * host,
        gpu_spread=float(random.uniform(0.003, 0.015)),
        node_spread=float(random.uniform(0.003, 0.025)),
        idiosyncrasy=float(random.uniform(0.007, 0.012)),
        launch_spread=float(random.uniform(0.005, 0.01)),
        correlation=up_to(0.5),
        start_seconds=about(18.0, 1.6)
        + 6.0 * model.params / 1e9 / math.sqrt(cluster.ranks)
        + 1.5 * math.log2(cluster.ranks),
    )


def make_cluster(random: np.random.Generator, device: Device, *, nodes: int, gpus_per_node: int) -> Cluster:
    """A cluster of these nodes, with links that are found beside such devices."""
    nvlink = _NVLINK.get(device.name)
    intra = (nvlink if nvlink and random.random() < 0.85 else 14e9) * random.uniform(0.7, 1.0)
    speeds: list[float] = [12, 48, 96, 190] if gpus_per_node >= 8 else [12, 24, 48, 96]
    if device.name in WORKSTATION:
        speeds = [1.2, 3, 12]
    elif device.name.startswith("H"):
        speeds = [48, 190, 380]
    inter = float(random.choice(speeds)) * 1e9 * random.uniform(0.6, 0.9)
    host = float(random.choice([256e9, 512e9, 1024e9, 2048e9])) * max(1, gpus_per_node // 4) / 2
    return Cluster(
        device=device,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        intra_bytes_per_second=intra,
        inter_bytes_per_second=inter,
        host_memory_bytes=int(host),
    )
