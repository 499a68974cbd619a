"""Checks whether the losses of a step were finite, without making the host wait for the device."""

import math
from collections.abc import Mapping
from typing import Any


class Losses:
    """The losses of one optimizer step, summed on their device: a sum with a NaN or an infinity in it is not finite.

    What the script passes to `backward` counts. If the script calls `backward` of the loss itself, the outputs of the
    forward passes count instead, if they are losses.
    """

    def __init__(self) -> None:
        self._outputs: Any = None
        self._given: Any = None
        self._told: Any = None

    def output(self, output: Any) -> None:  # noqa: ANN401 - whatever the model returns
        """Call it with what a forward pass returned."""
        self._outputs = _added(self._outputs, _loss_in(output))

    def given(self, loss: Any) -> None:  # noqa: ANN401
        """Call it with what `backward` gets, or what a pipeline's step returned."""
        self._given = _added(self._given, _loss_in(loss))

    def end(self) -> None:
        """Call it before the mark at the end of the step: once that mark has passed, the answer is on the host."""
        total = self._outputs if self._given is None else self._given
        if total is not None and total.device.type != "cpu":
            from deepspeed.accelerator import get_accelerator

            told = get_accelerator().pin_memory(total.new_empty((), device="cpu"))
            total = told.copy_(total, non_blocking=True)
        self._told, self._outputs, self._given = total, None, None

    def are_finite(self) -> bool:
        """Whether all losses that it saw were finite. Only for a step whose end has passed."""
        return self._told is None or math.isfinite(self._told.item())


def _added(total: Any, loss: Any) -> Any:  # noqa: ANN401
    if loss is None:
        return total
    summand = loss.detach().float().reshape(())
    # never the script's own tensor, which it may write to before the step has ended
    return summand.clone() if total is None else total + summand


def _loss_in(value: Any) -> Any:  # noqa: ANN401
    """The loss in a model's output: the output itself, its `loss`, or the first of several; None without one."""
    import torch

    found = value.get("loss") if isinstance(value, Mapping) else getattr(value, "loss", value)
    if isinstance(found, list | tuple) and found:
        found = found[0]
    is_loss = isinstance(found, torch.Tensor) and found.numel() == 1 and found.is_floating_point()
    return found if is_loss else None
