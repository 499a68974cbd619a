"""How fast a node's devices are, as a short fixed run (`probe/node_speed`) has measured it before runs of a study."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from dsopt.protocol.text import significant

_LEAST, _MOST = 1e-6, 1e9  # of what a device can do; a database may hold anything
_SLOWER: Final = 0.1  # than the others of its node, as a share of their rate


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRates:
    """What was measured on a node with all of its devices at once.

    Attributes:
        matmul_tflops: matrix products, 10^12 floating-point operations a second, by device.
        copy_gb_per_s: copies within a device's memory, 10^9 bytes a second, by device.
        all_reduce_gb_per_s: what each device sends and receives, 10^9 bytes a second; None of one device.
    """

    matmul_tflops: tuple[float, ...]
    copy_gb_per_s: tuple[float, ...]
    all_reduce_gb_per_s: float | None

    @property
    def of_node(self) -> dict[str, float]:
        """Each rate of the node as a whole, by its name: the slowest device's, whose pace the others keep."""
        rates = {"matmul_tflops": min(self.matmul_tflops), "copy_gb_per_s": min(self.copy_gb_per_s)}
        return rates if self.all_reduce_gb_per_s is None else {**rates, "all_reduce_gb_per_s": self.all_reduce_gb_per_s}

    def slow_devices(self) -> dict[int, float]:
        """Which devices are slower than the others, by their place in the pool, and by which share."""
        found: dict[int, float] = {}
        for rates in (self.matmul_tflops, self.copy_gb_per_s):
            usual = statistics.median_high(rates)
            for place, rate in enumerate(rates):
                if rate < (1 - _SLOWER) * usual:
                    found[place] = max(found.get(place, 0.0), 1 - rate / usual)
        return found

    def __str__(self) -> str:
        words = [f"{significant(min(self.matmul_tflops), 3)} TFLOP/s", f"copies {_per_second(min(self.copy_gb_per_s))}"]
        if self.all_reduce_gb_per_s is not None:
            words.append(f"all-reduce {_per_second(self.all_reduce_gb_per_s)}")
        return ", ".join(words)


def to_text(rates: Mapping[str, NodeRates]) -> str | None:
    """The rates of some nodes, by node, as JSON; None of no node."""
    return json.dumps({node: asdict(one) for node, one in rates.items()}) if rates else None


def rates_in(text: str | None) -> dict[str, NodeRates]:
    """The rates of each node that a text of `to_text` holds; none if it holds something else."""
    try:
        return {node: _rates(one) for node, one in json.loads(text or "{}").items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _rates(found: Any) -> NodeRates:  # noqa: ANN401 - any JSON value
    rates = NodeRates(
        matmul_tflops=tuple(map(_rate, found["matmul_tflops"])),
        copy_gb_per_s=tuple(map(_rate, found["copy_gb_per_s"])),
        all_reduce_gb_per_s=None if found["all_reduce_gb_per_s"] is None else _rate(found["all_reduce_gb_per_s"]),
    )
    if not rates.matmul_tflops or not rates.copy_gb_per_s:
        raise ValueError("no rates")
    return rates


def rates_of(found: Sequence[Mapping[str, Any] | None]) -> NodeRates | None:
    """The rates by what each rank has told; None if some rank has not told all that it measures alone."""
    if not found or any(not one or "copy_gb_per_s" not in one for one in found):
        return None
    told = [one for one in found if one]
    together = [one["all_reduce_gb_per_s"] for one in told if "all_reduce_gb_per_s" in one]
    return NodeRates(
        matmul_tflops=tuple(one["matmul_tflops"] for one in told),
        copy_gb_per_s=tuple(one["copy_gb_per_s"] for one in told),
        all_reduce_gb_per_s=min(together) if len(together) == len(told) else None,
    )


def behind(rates: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """How far each node is behind usual ones, as a logarithm that is 0 or less: by the rate in which it is most.

    Args:
        rates: of each node, by the rate's name.
    """
    names = {name for each in rates.values() for name in each}
    usual = {name: statistics.median_high(_values(each.get(name) for each in rates.values())) for name in names}
    return {
        node: min((math.log(rate / usual[name]) for name, rate in each.items()), default=0.0)
        for node, each in rates.items()
    }


def _values(rates: Iterable[float | None]) -> list[float]:
    return [rate for rate in rates if rate is not None]


def is_rate(value: float) -> bool:
    """Whether some device may have this rate."""
    return _LEAST < value < _MOST


def _rate(value: Any) -> float:  # noqa: ANN401 - any JSON value
    if not is_rate(value):
        raise ValueError("no rate")
    return float(value)


def _per_second(gigabytes: float) -> str:
    return f"{significant(gigabytes / 1000, 3)} TB/s" if gigabytes >= 1000 else f"{significant(gigabytes, 3)} GB/s"
