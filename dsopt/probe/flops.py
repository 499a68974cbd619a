"""Counts the floating-point operations of the first forward pass that trains."""

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any, Final

from dsopt.protocol.events import EventWriter, Flops

_PASSES: Final = 3  # backward takes twice as many
_OWN: Final = "deepspeed."  # compiles functions of optimizers as it is imported
_PIPELINE: Final = "deepspeed.runtime.pipe.module"  # compiles layers


class FlopCount:
    """Counts them if `is_on`. A step has three times as many for each micro-step, as in DeepSpeed's autotuner.

    What activation checkpointing computes once more is no work done: a slower training would have more FLOPS. Nothing
    is counted of a script that compiles: what torch has met while it counted, it never compiles in that process.
    """

    def __init__(self, *, is_on: bool) -> None:
        self._is_due = is_on
        self._watching = ExitStack()

    def watch(self, torch: ModuleType) -> None:
        """Notes whether `torch.compile` is called before the first pass, also by `Module.compile` and libraries."""
        if not self._is_due:
            return
        original = torch.compile

        @functools.wraps(original)
        def compile_(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if not caller.startswith(_OWN) or caller == _PIPELINE:
                self._is_due = False
            return original(*args, **kwargs)

        torch.compile = compile_  # type: ignore[attr-defined]
        self._watching.callback(setattr, torch, "compile", original)

    def around(self, forward: Callable[[], Any], writer: EventWriter, micro_steps: int) -> Any:  # noqa: ANN401
        """Makes a forward pass, and tells of the first one.

        Args:
            forward: makes the pass.
            writer: of this rank's events.
            micro_steps: how many make up an optimizer step.
        """
        self._watching.close()  # at the first pass; later ones find nothing to close
        if not self._is_due:
            return forward()
        from torch.utils.flop_counter import FlopCounterMode

        self._is_due = False
        with FlopCounterMode(display=False) as counter:
            result = forward()
        flops = float(_PASSES * counter.get_total_flops() * micro_steps)
        writer.emit(Flops(rank=writer.rank, flops_per_step=flops))
        return result
