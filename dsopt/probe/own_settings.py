"""What a script sets in DeepSpeed's configuration by itself, whatever the file says that it was given."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dsopt.protocol.secret_names import is_secret_name

_SIZES: Final = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_NONE: Final = (None, "none")
_LEFT: Final = (None, "auto")  # to the script


def own_settings(engine: Any, asked: Path | None) -> str:  # noqa: ANN401
    """The settings of an engine that are not those of a file, each path with its value, as a JSON object.

    Sizes are reported by themselves. What the file leaves open is the script's to set, except within ZeRO. What
    may be a secret is left out: a script may put in what the file only names, such as a token.
    """
    differing: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # other versions of DeepSpeed keep it elsewhere, and a script may give a path
        if asked is not None:
            given, used = _flat(json.loads(asked.read_bytes())), _flat(engine._config._param_dict)
            for path in sorted(given.keys() | used.keys()):
                is_open = given.get(path) in _LEFT and not (path.startswith("zero_optimization.") and path not in given)
                is_told = path not in _SIZES and not is_open and not _is_secret(path, used.get(path))
                if is_told and not _are_alike(given.get(path), used.get(path)):
                    differing[path] = used.get(path)
    return json.dumps(differing) if differing else ""


def _is_secret(path: str, value: object) -> bool:
    return isinstance(value, str) and is_secret_name(path)


def _are_alike(one: object, other: object) -> bool:
    """Whether two values mean the same; a device that is not given is none."""
    return one == other or (one in _NONE and other in _NONE)


def _flat(value: Any, path: str = "") -> dict[str, Any]:  # noqa: ANN401
    """The values in nested mappings by their paths; what is in a list is part of its value."""
    if not isinstance(value, Mapping):
        return {path: value if isinstance(value, bool | int | float | str) else None}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= _flat(inner, f"{path}.{key}" if path else str(key))
    return found
