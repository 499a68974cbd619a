"""How much of a device's memory the best configuration leaves free."""

from dataclasses import dataclass
from typing import Final

from dsopt.search.history import History
from dsopt.study.quantity import gib

_LITTLE: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Bytes of one device.

    Attributes:
        needed_bytes: the most that any run of the best needed (`ModelFacts.needed_bytes`).
        device_bytes: what a rank may use.
        retries: how often torch had to give cached blocks back to go on, in any run of the best.
    """

    needed_bytes: int
    device_bytes: int
    retries: int = 0

    @property
    def share(self) -> float:
        """The part of the device that stayed free."""
        return 1 - self.needed_bytes / self.device_bytes

    @property
    def is_little(self) -> bool:
        """Whether a long training may not fit."""
        return self.share < _LITTLE or self.retries > 0

    def text(self) -> str:
        """In words, with a warning if it is little."""
        free = f"{100 * max(0.0, self.share):.0f} %"
        used = f"It needs up to {gib(self.needed_bytes)} of a device's {gib(self.device_bytes)}"
        if self.retries:
            times = "once" if self.retries == 1 else f"{self.retries} times"
            return (
                f"WARNING: {used}, and PyTorch's allocator ran out {times} in short runs, and gave cached blocks back "
                "to go on. That is slow, and a long training may run out. Consider a smaller micro-batch."
            )
        if not self.is_little:
            return f"{used}; {free} stay free."
        return (
            f"WARNING: {used}, so only {free} stay free. A long training may need more than a short run: for longer "
            "samples, fragments, an evaluation. Consider a smaller micro-batch, or set memory_per_device lower."
        )


def headroom_of(history: History, best: str) -> Headroom | None:
    """The headroom of a configuration, by name; None where nobody knows it, as on the CPU."""
    shown = [o.facts for o in history.everything if o.name == best and o.facts is not None and o.facts.outside_bytes]
    if not shown:
        return None
    needed = max(facts.needed_bytes for facts in shown)
    retries = max(facts.alloc_retries for facts in shown)
    return Headroom(needed_bytes=needed, device_bytes=shown[-1].device_memory_bytes, retries=retries)
