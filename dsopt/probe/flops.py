"""Counts the floating-point operations of the second forward pass that trains."""

import contextlib
import sys
from collections.abc import Callable
from typing import Any, Final

from dsopt.protocol.events import EventWriter, Flops

_PASSES: Final = 3  # backward takes twice as many


class FlopCount:
    """Counts them if `is_on`. A step has three times as many for each micro-step, as in DeepSpeed's autotuner.

    What activation checkpointing computes once more is no work done: a slower training would have more FLOPS. The first
    pass shows whether torch compiles something in it, as for flex attention. If it does, nothing is counted: what torch
    meets while it counts, it never compiles in that process.
    """

    def __init__(self, *, is_on: bool) -> None:
        self._is_due, self._is_first = is_on, True

    def around(self, forward: Callable[[], Any], writer: EventWriter, micro_steps: int) -> Any:  # noqa: ANN401
        """Makes a forward pass, and tells of the second one.

        Args:
            forward: makes the pass.
            writer: of this rank's events.
            micro_steps: how many make up an optimizer step.
        """
        if not self._is_due:
            return forward()
        if self._is_first:
            self._is_first, before = False, _compiled()
            result = forward()
            self._is_due = _compiled() == before
            return result
        self._is_due = False
        result, flops = _counted(forward)
        if flops is not None:
            writer.emit(Flops(rank=writer.rank, flops_per_step=float(_PASSES * flops * micro_steps)))
        return result


def _compiled() -> int:
    """How much torch has compiled in this process: graphs, and frames, which may have none."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return 0
    return int(dynamo.counters["stats"]["unique_graphs"] + dynamo.counters["frames"]["total"])


def _counted(forward: Callable[[], Any]) -> tuple[Any, int | None]:
    """What a function returns, and how many operations it took; None: torch cannot say.

    Torch's `FlopCounterMode` also follows which module each is of. What takes gradients in its forward pass, as force
    fields do, fails under that.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    counts: list[int | None] = []

    class Count(TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True  # such as flex attention

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
            given = kwargs or {}
            out = func(*args, **given)
            if (formula := flop_registry.get(getattr(func, "_overloadpacket", None))) is not None:
                counts.append(None)
                with contextlib.suppress(Exception):  # tensors of some kinds have no sizes
                    counts[-1] = formula(*args, **given, out_val=out)
            return out

    with Count():
        result = forward()
    known = [count for count in counts if count is not None]
    return result, sum(known) if len(known) == len(counts) else None
