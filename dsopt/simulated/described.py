"""The scenario of a dry run: what a study's `simulation` section describes, with traits drawn from its seed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dsopt.simulated.catalogue import DEVICES, MODELS
from dsopt.simulated.chance import seed_of
from dsopt.simulated.cluster import Scenario
from dsopt.simulated.families import draw_traits, make_cluster
from dsopt.simulated.model import Device, Model

_TERA: Final = 1e12


def described(section: Mapping[str, Any], *, gpus: int, nodes: int) -> Scenario:
    """The scenario that a `simulation` section stands for; see `dsopt.study.simulation` for its keys.

    Args:
        section: the section, checked.
        gpus, nodes: GPUs of a node, and nodes, of the whole cluster.
    """
    seed = section.get("seed", 0)
    random = np.random.default_rng(seed_of("simulation", seed))
    cluster = make_cluster(random, _device(section["gpu"]), nodes=nodes, gpus_per_node=gpus)
    model = _model(section["model"])
    return Scenario(
        name="simulation",
        seed=seed,
        model=model,
        cluster=cluster,
        noise=section.get("noise", 0.02),
        max_train_batch_size=None,
        baseline={},
        traits=draw_traits(random, model, cluster),
    )


def _device(gpu: str | Mapping[str, Any]) -> Device:
    """A device by name, or by its numbers; what is not given is in proportion to an A100's."""
    if isinstance(gpu, str):
        return DEVICES[gpu]
    like = DEVICES["A100-80GB"]
    half = gpu["tflops"] * _TERA
    return replace(
        like,
        name="GPU",
        memory_bytes=gpu["memory"],
        half_flops_per_second=half,
        single_flops_per_second=gpu.get("fp32_tflops", half / _TERA / 8) * _TERA,
        memory_bytes_per_second=gpu.get("memory_bandwidth", like.memory_bytes_per_second),
    )


def _model(described: str | Mapping[str, Any]) -> Model:
    """A model by name, or by its shape; what is not given is as in GPT-2."""
    if isinstance(described, str):
        return MODELS[described]
    layers, hidden = described["layers"], described["hidden"]
    vocab = described.get("vocab", 50257)
    intermediate = described.get("intermediate", 4 * hidden)
    params = described.get("params", layers * (4 * hidden**2 + 2 * hidden * intermediate) + vocab * hidden)
    return Model(
        name="model",
        params=params,
        trainable_params=described.get("trainable_params", params),
        layers=layers,
        hidden=hidden,
        heads=described.get("heads", max(1, hidden // 64)),
        intermediate=intermediate,
        vocab=vocab,
        sequence=described.get("sequence", 1024),
        is_flash=described.get("flash_attention", False),
        is_checkpointing=described.get("checkpointing", False),
    )
