"""The scenario of a dry run: as a study's `simulation` section describes it, with traits drawn from its seed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dsopt.simulated.catalogue import DEVICES, MODELS
from dsopt.simulated.chance import seed_of
from dsopt.simulated.cluster import Scenario
from dsopt.simulated.draw import draw_traits, make_cluster
from dsopt.simulated.model import Device, Model

_TERA: Final = 1e12
_SHAPE: Final = ("layers", "hidden", "heads", "intermediate", "vocab", "sequence")


def described(section: Mapping[str, Any], *, gpus: int, nodes: int) -> Scenario:
    """The scenario that a `simulation` section describes; see `dsopt.study.simulation` for its keys.

    Args:
        section: the section, checked, with its defaults.
        gpus, nodes: GPUs of a node, and nodes, of the whole cluster.
    """
    seed = section["seed"]
    random = np.random.default_rng(seed_of("simulation", seed))
    cluster = make_cluster(random, _device(section["gpu"]), nodes=nodes, gpus_per_node=gpus)
    model = _model(section["model"])
    return Scenario(
        name="simulation",
        seed=seed,
        model=model,
        cluster=cluster,
        noise=section["noise"],
        max_train_batch_size=None,
        baseline={},
        traits=draw_traits(random, model, cluster),
    )


def _device(gpu: Mapping[str, Any]) -> Device:
    """A device by name, by its numbers, or both; without a name, missing numbers are those of an A100."""
    like = DEVICES[gpu["name"]] if "name" in gpu else replace(DEVICES["A100-80GB"], name="GPU")
    return replace(
        like,
        memory_bytes=gpu.get("memory", like.memory_bytes),
        half_flops_per_second=gpu.get("tflops", like.half_flops_per_second / _TERA) * _TERA,
        single_flops_per_second=gpu.get("fp32_tflops", like.single_flops_per_second / _TERA) * _TERA,
        memory_bytes_per_second=gpu.get("memory_bandwidth", like.memory_bytes_per_second),
    )


def _model(shape: Mapping[str, Any]) -> Model:
    """A model by name, by its shape, or both; without a name, missing parts are as in GPT-2."""
    named = MODELS[shape["name"]] if "name" in shape else None
    own = {key: shape[key] for key in _SHAPE if key in shape}
    if named is None:
        hidden = shape["hidden"]
        own = {"heads": max(1, hidden // 64), "intermediate": 4 * hidden, "vocab": 50257, "sequence": 1024} | own
        layer = 4 * hidden**2 + 2 * hidden * own["intermediate"]
        params = shape.get("params", shape["layers"] * layer + own["vocab"] * hidden)
        named = Model(name="model", params=params, trainable_params=params, **own)
    params = shape.get("params", named.params)
    return replace(
        named,
        **own,
        params=params,
        trainable_params=min(params, shape.get("trainable_params", params)),
        is_flash=shape["flash_attention"],
        is_checkpointing=shape["checkpointing"],
    )
