"""Quantities as people write them."""

import re

_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_bytes(value: object) -> object:
    """A number of bytes from a number or from text such as `24GiB`, `80GB` or `512M` (powers of 1000 without an i)."""
    if not isinstance(value, str):
        return value
    match = _BYTES.fullmatch(value.strip())
    if match is None:
        raise ValueError("expected a number of bytes, such as 24GiB or 80GB")
    number, prefix, binary = match.groups()
    if len(number) > 18:
        raise ValueError("expected a number of bytes that a device can have")
    return int(float(number) * (1024 if binary else 1000) ** _POWER[prefix.lower()])


def gib(size: float) -> str:
    """A number of bytes for people: `12.00 GiB`."""
    return f"{size / 2**30:.2f} GiB"
