"""Estimates the memory of a live model's states: what DeepSpeed's `…_mem_needs_all_live` print, and more."""

from typing import Any

from dsopt.estimates.table import Estimate, estimate_memory
from dsopt.estimates.zero_memory import ELEMENT_BYTES, Dtype, ModelSize


def estimate_model(model: object, *, num_gpus: int, num_nodes: int, dtype: Dtype) -> Estimate:
    """Estimates the memory of a live model's states, for `dsopt.estimate`."""
    for name, number in (("num_gpus", num_gpus), ("num_nodes", num_nodes)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(f"{name}: {number!r}. Expected a whole number of at least 1.")
    if dtype not in ELEMENT_BYTES:
        raise ValueError(f"dtype: {dtype!r}. Expected one of {', '.join(ELEMENT_BYTES)}.")
    return estimate_memory(model_size(model, dtype), gpus_per_node=num_gpus, nodes=num_nodes)


def model_size(model: Any, dtype: Dtype) -> ModelSize:  # noqa: ANN401 - a torch module, which only the probe imports
    """Counts a torch module as DeepSpeed's estimators do: parameters that share memory count once.

    Unlike them, it also counts a model that `zero.Init` or ZeRO 3 has partitioned, and one on the meta device.

    Raises:
        TypeError: not a torch module.
        ValueError: a model without parameters.
    """
    if not callable(getattr(model, "parameters", None)) or not callable(getattr(model, "modules", None)):
        raise TypeError(f"model: {type(model).__name__!r}. Expected a torch.nn.Module.")
    parameters = {p.data_ptr() or id(p): p for p in model.parameters()}.values()
    if not parameters:
        raise ValueError(f"model: {type(model).__name__!r} has no parameters.")
    return ModelSize(
        num_params=sum(_size(p) for p in parameters),
        trainable_params=sum(_size(p) for p in parameters if p.requires_grad),
        largest_layer_params=max(sum(_size(p) for p in m.parameters(recurse=False)) for m in model.modules()),
        dtype=dtype,
    )


def _size(parameter: Any) -> int:  # noqa: ANN401 - a torch parameter
    """Its elements; if ranks partition it, it has only this rank's part, and `ds_numel` is its whole size."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))
