"""Numbers as people read them."""

from typing import Final

from dsopt.protocol.text import significant

_LARGE: Final = 1e9  # as FLOPS are


def number(value: float | None) -> str:
    """A metric, or a dash where there is none."""
    if value is not None and value >= _LARGE:
        return f"{value:.3e}".replace("e+", "e")
    return "-" if value is None else significant(value)


def percent(probability: float) -> str:
    """A probability, which is never shown as certain."""
    return "more than 99 %" if probability > 0.99 else f"{100 * probability:.0f} %"
