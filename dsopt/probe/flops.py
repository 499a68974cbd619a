"""Counts the floating-point operations of the first micro-steps."""

from typing import Any

from dsopt.protocol.events import EventWriter, Flops


class FlopCount:
    """Counts from the first forward pass to the end of the first backward pass, if `is_on`.

    Of a script that calls `backward` of its loss, nobody sees that end. It counts until the optimizer's turn then.
    """

    def __init__(self, *, is_on: bool) -> None:
        self._is_due = is_on
        self._counter: Any = None
        self._passes = 0

    def begin(self) -> None:
        """Call it before each forward pass."""
        self._passes += self._is_due
        if self._is_due and self._counter is None:
            from torch.utils.flop_counter import FlopCounterMode

            self._counter = FlopCounterMode(display=False)
            self._counter.__enter__()

    def end(self, writer: EventWriter, micro_steps: int) -> None:
        """Call it after each backward pass and before the optimizer's step.

        Args:
            writer: of this rank's events.
            micro_steps: how many make up an optimizer step.
        """
        if self._is_due and self._counter is not None:
            self._counter.__exit__(None, None, None)
            self._is_due = False
            flops = float(self._counter.get_total_flops()) * micro_steps / self._passes
            writer.emit(Flops(rank=writer.rank, flops_per_step=flops))
