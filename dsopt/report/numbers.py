"""Numbers as people read them."""


def number(value: float | None) -> str:
    """A metric, or a dash where there is none."""
    return "-" if value is None else f"{value:.6g}"


def percent(probability: float) -> str:
    """A probability, which is never shown as certain."""
    return "more than 99 %" if probability > 0.99 else f"{100 * probability:.0f} %"
