"""Numbers as people read them."""


def number(value: float | None) -> str:
    """A metric, or a dash where there is none."""
    return "-" if value is None else f"{value:.6g}"
