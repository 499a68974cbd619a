"""Describes an engine and its model: sizes, the settings in force, the batches that it gets."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dsopt.probe.device import Device
from dsopt.probe.host import host_memory_bytes
from dsopt.protocol.events import Engine

_MOST_LOOKED_AT: Final = 1000  # of the objects that a script feeds
_HIDDEN_SIZE: Final = ("hidden_size", "n_embd", "d_model", "dim")
_NUM_LAYERS: Final = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")


def describe(engine: Any, device: Device, rank: int, memory_limit_bytes: int) -> Engine:  # noqa: ANN401
    """Describes an engine that has just been built: its model, its device and the settings in force."""
    dtype = "bf16" if engine.bfloat16_enabled() else "fp16" if engine.fp16_enabled() else "fp32"
    return Engine(
        rank=rank,
        world_size=engine.world_size,
        zero_stage=engine.zero_optimization_stage(),
        micro_batch=engine.train_micro_batch_size_per_gpu(),
        gas=engine.gradient_accumulation_steps(),
        dtype=dtype,
        autocast=_autocast(engine),
        autotp=autotp_of(engine),
        **_pipeline(engine),
        **_model_and_device(engine.module, device, memory_limit_bytes, _tensor_parallel(engine)),
    )


def _autocast(engine: Any) -> str:  # noqa: ANN401
    """The data type of `torch_autocast`, where it is on and DeepSpeed has it."""
    is_on = getattr(engine, "torch_autocast_enabled", None)
    if is_on is None or not is_on():
        return ""
    names = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}
    return names.get(str(engine.torch_autocast_dtype()), "")


def _tensor_parallel(engine: Any) -> int:  # noqa: ANN401
    """How many ranks share each layer of the model, by what splits it: Megatron, a pipeline's grid, or AutoTP.

    They answer to other names, as in `deepspeed/utils/bwc.py`.
    """
    mpu = getattr(engine, "mpu", None)
    names = ("get_tensor_model_parallel_world_size", "get_slice_parallel_world_size", "get_model_parallel_world_size")
    ask = next((found for name in names if (found := getattr(mpu, name, None)) is not None), None)
    return 1 if ask is None else max(1, int(ask()))


def autotp_of(engine: Any) -> int:  # noqa: ANN401
    """How many ranks share each layer by DeepSpeed's own AutoTP, which not every version has."""
    ask = getattr(engine, "autotp_size", None)
    return 1 if ask is None else max(1, int(ask()))


def samples_counted_for(engine: Any, mpu: Any) -> int:  # noqa: ANN401
    """By how many each sample is counted in `train_batch_size()`: DeepSpeed counts those of AutoTP's ranks apart.

    It does so unless the script has given it a grid that knows the data-parallel ranks (`deepspeed/runtime/config.py`,
    0.19.8).
    """
    return 1 if hasattr(mpu, "get_data_parallel_world_size") else autotp_of(engine)


def _pipeline(engine: Any) -> dict[str, Any]:  # noqa: ANN401
    """The module knows its stages; a pipeline engine does only after what it derives from has been built."""
    if not vars(engine).get("pipeline_parallelism", False):
        return {}
    return {"pipeline_stages": int(engine.module.num_stages), "pipeline_stage": int(engine.module.stage_id)}


def describe_plain(
    module: Any,  # noqa: ANN401 - a torch module
    device: Device,
    rank: int,
    memory_limit_bytes: int,
    *,
    world_size: int,
    micro_batch: int,
    gas: int,
    dtype: str,
) -> Engine:
    """Describes a model that trains without DeepSpeed, with what the probe saw of its run."""
    return Engine(
        rank=rank,
        world_size=world_size,
        zero_stage=0,
        micro_batch=micro_batch,
        gas=gas,
        dtype=dtype,
        framework="torch",
        **_model_and_device(module, device, memory_limit_bytes),
    )


def _software() -> str:
    """The versions of what this process trains with."""
    torch, deepspeed = (sys.modules.get(name) for name in ("torch", "deepspeed"))
    version = getattr(torch, "version", None)
    found = {
        "torch": getattr(torch, "__version__", None),
        "DeepSpeed": getattr(deepspeed, "__version__", None),
        "CUDA": getattr(version, "cuda", None),
        "ROCm": getattr(version, "hip", None),
    }
    return ", ".join(f"{name} {text}" for name, text in found.items() if text)


def _model_and_device(
    module: Any,  # noqa: ANN401
    device: Device,
    memory_limit_bytes: int,
    shared_by: int = 1,
) -> dict[str, Any]:
    """What a rank holds of a model of which so many ranks have a part of each layer, and its device."""
    parameters = list(module.parameters())
    sizes = [(size_of(p), p.requires_grad) for p in parameters]
    capacity = device.capacity_bytes()
    if memory_limit_bytes:
        capacity = min(capacity, memory_limit_bytes)
    return {
        "software": _software(),
        "num_params": shared_by * sum(size for size, _ in sizes),
        "trainable_params": shared_by * sum(size for size, trainable in sizes if trainable),
        "device": device.name(),
        "device_memory_bytes": capacity,
        "largest_layer_params": max(
            (sum(size_of(p) for p in part.parameters(recurse=False)) for part in module.modules()), default=0
        ),
        "hidden_size": _configured(module, _HIDDEN_SIZE),
        "num_layers": _configured(module, _NUM_LAYERS),
        "host_memory_bytes": host_memory_bytes(),
    }


def shape_of(inputs: Sequence[Any]) -> tuple[int, int]:
    """The size of the first dimension that all tensors among a forward pass's inputs share, and the elements of all.

    It looks into mappings, sequences and objects that hold tensors, such as dataclasses. 0: there is no such size.
    """
    found: set[int] = set()
    elements, known = 0, set[int]()
    pending = list(inputs)
    while pending:
        value = pending.pop()
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            if shape:
                found.add(int(shape[0]))
                elements += math.prod(shape)
            continue
        if id(value) in known or len(known) >= _MOST_LOOKED_AT:
            continue
        known.add(id(value))
        if isinstance(value, Mapping):
            pending += value.values()
        elif isinstance(value, list | tuple):
            pending += value
        elif hasattr(value, "__dict__") and not callable(value):
            pending += vars(value).values()
    return (found.pop() if len(found) == 1 else 0), elements


def size_of(parameter: Any) -> int:  # noqa: ANN401 - a torch parameter
    """Its elements. Under ZeRO 3 it has only this rank's share; ds_numel is its whole size."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))


def _configured(module: Any, names: Sequence[str]) -> int | None:  # noqa: ANN401 - a torch module
    """A number that a Hugging Face model's configuration gives under one of these names."""
    config = getattr(module, "config", None)
    for holder in (config, getattr(config, "text_config", None)):
        for name in names:
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def trains(engine: Any) -> bool:  # noqa: ANN401 - DeepSpeed's
    """Whether an engine has a real optimizer.

    One without has in that place what gathers its parameters at ZeRO 3, and in bf16 a dummy within a wrapper.
    """
    optimizer = engine.optimizer
    kinds = {type(optimizer).__name__, type(getattr(optimizer, "optimizer", None)).__name__}
    return optimizer is not None and not kinds & {"DeepSpeedZeRoOffload", "DummyOptim"}
