"""What DeepSpeed's declarations say about keys: fields of its models, defaults, parameters of functions."""

import enum
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

_KINDS: dict[type, str] = {
    bool: "bool", int: "int", float: "float", str: "str", Path: "str", list: "list", tuple: "list", dict: "object",
}  # fmt: skip


def key_of_default(default: object) -> dict[str, Any]:
    """A key that DeepSpeed takes as it is, known only by its default; a default of None or "auto" says nothing."""
    kind = "any" if default == "auto" else _KINDS.get(type(default), "any")
    return {"kind": "float" if kind == "int" else kind, "can_be_null": True, "is_exact": True}


def section_of_model(model: Any) -> dict[str, Any]:  # noqa: ANN401 - a pydantic model
    """The section that a model of DeepSpeed's reads."""
    keys, replaced = {}, {}
    for name, field in model.model_fields.items():
        key = _key_of_annotation(field.annotation)
        for bound in field.metadata:
            key |= {word: getattr(bound, word) for word in ("ge", "gt", "le", "lt") if hasattr(bound, word)}
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if extra.get("set_new_param", True) and "new_param" in extra:
            replaced[name] = extra["new_param"]
        for spelled in {name, field.alias or name}:
            keys[spelled] = key
    unknown = "refused" if model.model_config.get("extra") == "forbid" else "ignored"
    return {"unknown": unknown, "keys": keys, "replaced": replaced}


def section_of_calls(functions: list[Callable[..., Any]], leave: frozenset[str]) -> dict[str, Any]:
    """The section whose keys DeepSpeed passes to one of these functions as arguments, except those to `leave`."""
    keys: dict[str, Any] = {}
    open_ended = []
    for function in functions:
        parameters = inspect.signature(function).parameters
        open_ended.append(any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()))
        for name, parameter in parameters.items():
            if name not in leave and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                key = key_of_default(None if parameter.default is parameter.empty else parameter.default)
                keys[name] = key if keys.get(name, key) == key else key_of_default(None)
    return {"unknown": "passed on" if all(open_ended) else "refused", "keys": keys}


def _key_of_annotation(annotation: Any) -> dict[str, Any]:  # noqa: ANN401 - any annotation
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        key = _key_of_annotation(members[0]) if len(members) == 1 else {"kind": "any"}
        return {**key, "can_be_null": len(members) < len(arguments)}
    if origin is typing.Literal:
        return {"kind": "str", "choices": [value for value in arguments if isinstance(value, str)]}
    kind = origin or annotation
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        values = [member.value for member in kind]
        return (
            {"kind": "str", "choices": values} if all(isinstance(value, str) for value in values) else {"kind": "any"}
        )
    if hasattr(kind, "model_fields"):
        return {"kind": "section", "section": section_of_model(kind)}
    return {"kind": _KINDS.get(kind, "any")}
