"""Counts the floating-point operations of the first micro-step."""

from typing import Any

from dsopt.protocol.events import EventWriter, Flops


class FlopCount:
    """Counts from the first forward pass to the end of the first backward pass, if `is_on`."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_due = is_on
        self._counter: Any = None

    def begin(self) -> None:
        """Call it before each forward pass."""
        if self._is_due and self._counter is None:
            from torch.utils.flop_counter import FlopCounterMode

            self._counter = FlopCounterMode(display=False)
            self._counter.__enter__()

    def end(self, writer: EventWriter, micro_steps: int) -> None:
        """Call it after each backward pass. `micro_steps`: how many make up an optimizer step."""
        if self._is_due and self._counter is not None:
            self._counter.__exit__(None, None, None)
            self._is_due = False
            flops = float(self._counter.get_total_flops()) * micro_steps
            writer.emit(Flops(rank=writer.rank, flops_per_step=flops))
