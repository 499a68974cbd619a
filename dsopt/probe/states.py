"""What an engine holds for one parameter: read from it after its first applied step, rather than assumed."""

from collections.abc import Iterable
from typing import Any, Final

from dsopt.probe.model import size_of
from dsopt.protocol.events import States

_FP32_BYTES: Final = 4


def held_by(engine: Any, rank: int) -> States | None:  # noqa: ANN401 - deepspeed.DeepSpeedEngine
    """Bytes of a weight, a gradient and the optimizer states of one parameter, on device or host; None: not to be seen.

    An fp32 weight counts among the optimizer states if the model's own has fewer bits. States on a disk are not seen.
    """
    own = list(engine.module.parameters())
    optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    updated = dict(optimizer.state) or {weight: {} for weight in _updated(engine.optimizer, optimizer)}
    count = sum(parameter.numel() for parameter in updated)
    elements = sum(map(size_of, own))
    if not count or not elements:
        return None
    weight = sum(size_of(p) * p.element_size() for p in own) / elements
    copies = _bytes(updated) if weight < _FP32_BYTES else 0.0
    states = _bytes(value for each in updated.values() for value in each.values() if _is_of_elements(value))
    _, accumulated = engine.get_data_types()
    return States(
        rank=rank,
        weight_bytes=weight,
        gradient_bytes=float(accumulated.itemsize),
        optimizer_bytes=(copies + states) / count,
    )


def _updated(wrapper: Any, optimizer: Any) -> list[Any]:  # noqa: ANN401
    """The weights of an optimizer without states, such as plain SGD. ZeRO 3 shows it its own only while it steps."""
    shown = [weight for group in optimizer.param_groups for weight in group["params"]]
    return shown or list(getattr(wrapper, "fp32_partitioned_groups_flat", ()))


def _is_of_elements(value: Any) -> bool:  # noqa: ANN401
    """Whether a state is one of each element, not a step count."""
    return hasattr(value, "element_size") and value.numel() > 1


def _bytes(tensors: Iterable[Any]) -> float:
    return float(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
