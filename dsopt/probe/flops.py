"""Counts the floating-point operations of the first forward pass that trains."""

from collections.abc import Callable
from typing import Any, Final

from dsopt.protocol.events import EventWriter, Flops

_PASSES: Final = 3  # backward takes twice as many


class FlopCount:
    """Counts them if `is_on`. A step has three times as many for each micro-step, as in DeepSpeed's autotuner.

    What activation checkpointing computes once more is no work done: a slower training would have more FLOPS.
    """

    def __init__(self, *, is_on: bool) -> None:
        self._is_due = is_on

    def around(self, forward: Callable[[], Any], writer: EventWriter, micro_steps: int) -> Any:  # noqa: ANN401
        """Makes a forward pass, and tells of the first one.

        Args:
            forward: makes the pass.
            writer: of this rank's events.
            micro_steps: how many make up an optimizer step.
        """
        if not self._is_due:
            return forward()
        from torch.utils.flop_counter import FlopCounterMode

        self._is_due = False
        with FlopCounterMode(display=False) as counter:
            result = forward()
        flops = float(_PASSES * counter.get_total_flops() * micro_steps)
        writer.emit(Flops(rank=writer.rank, flops_per_step=flops))
        return result
