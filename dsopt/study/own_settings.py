"""The settings of DeepSpeed that a script sets by itself, whatever its configuration says, as its engine tells."""

import json
from collections.abc import Mapping
from typing import Any, Final

from dsopt.study.ds_config import get_path

_NONE: Final = (None, "none")


def settings_in(text: str) -> Mapping[str, Any]:
    """The values by their paths; none if somebody has written something else into the database."""
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def is_own_value(config: Mapping[str, Any], path: str, value: object) -> bool:
    """Whether a configuration has a value at a path; a device that is not given is none."""
    own = get_path(config, path)
    return own == value or (own in _NONE and value in _NONE)
