"""Which values a key of DeepSpeed's configuration accepts."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from dsopt.study.ds_schema import Key

_LAX: Final[Mapping[str, TypeAdapter[Any]]] = {
    "bool": TypeAdapter(bool), "int": TypeAdapter(int), "float": TypeAdapter(float),
}  # fmt: skip
_WORDS: Final = {
    "bool": "true, false", "int": "a whole number", "float": "a number", "str": "text", "list": "a list",
    "object": "an object", "any": "a value",
}  # fmt: skip
_BOUNDS: Final = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def fits(value: object, key: Key) -> bool:
    """Whether DeepSpeed accepts a value; if it does not check a key, the value must be of the default's kind."""
    if value is None:
        return key.can_be_null
    if value == "auto":  # filled in by Hugging Face, or taken as the default
        return True
    if key.choices:
        choices = {choice.lower() for choice in key.choices} if key.any_case else set(key.choices)
        return isinstance(value, str) and (value.lower() if key.any_case else value) in choices
    if key.kind in ("int", "float"):
        number = _converted(value, key)
        bounds = (key.ge, key.gt, key.le, key.lt)
        return number is not None and _is_within(number, *bounds)
    if key.kind == "bool":
        return value in (True, False) if key.is_exact else _converted(value, key) is not None
    kinds: dict[str, type] = {"str": str, "list": list, "object": Mapping}
    return key.kind == "any" or isinstance(value, kinds[key.kind])


def _converted(value: object, key: Key) -> float | None:
    """A value as DeepSpeed's models convert it, or None if they do not."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if key.kind != "bool" and not is_number and (key.is_exact or isinstance(value, bool)):
        return None
    try:
        return float(_LAX[key.kind].validate_python(value))
    except (ValidationError, OverflowError):
        return None


def _is_within(number: float, ge: float | None, gt: float | None, le: float | None, lt: float | None) -> bool:
    above = (ge is None or number >= ge) and (gt is None or number > gt)
    return above and (le is None or number <= le) and (lt is None or number < lt)


def expected(key: Key) -> str:
    """What a key accepts, in words."""
    if key.choices:
        return ", ".join(f'"{choice}"' for choice in key.choices) + ' or "auto"'
    bounds = [f"{word} {bound:g}" for name, word in _BOUNDS.items() if (bound := getattr(key, name)) is not None]
    return _WORDS[key.kind] + (f" of {' and '.join(bounds)}" if bounds else "") + ' or "auto"'


def is_true(value: object) -> bool:
    """Whether DeepSpeed takes a value for true; "auto" is not yet."""
    try:
        return value not in ("auto", None) and _LAX["bool"].validate_python(value) is True
    except ValidationError:
        return False
