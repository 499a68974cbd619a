"""Numbers as people read them."""

from dsopt.protocol.text import significant


def number(value: float | None) -> str:
    """A metric, or a dash where there is none."""
    return "-" if value is None else significant(value)


def percent(probability: float) -> str:
    """A probability, which is never shown as certain."""
    return "more than 99 %" if probability > 0.99 else f"{100 * probability:.0f} %"


def speedup_text(speedup: float, interval: tuple[float, float] | None) -> str:
    """How many times the baseline, and how sure that is."""
    if interval is None:
        return f"{speedup:.2f} times the baseline."
    low, high = interval
    sure = "" if low > 1 else " The interval includes 1: it may be no faster than yours."
    return f"{speedup:.2f} times the baseline (95 % interval {low:.2f}–{high:.2f}).{sure}"
