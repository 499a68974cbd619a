"""What a command's own configuration file has now that a study was not created with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.study.autotuning import Autotuning
from dsopt.study.documents import is_file
from dsopt.study.given_config import config_of, read_config
from dsopt.study.space import ZERO
from dsopt.study.spec import StudySpec

_OF_DSOPT: Final = {"autotuning", *Autotuning.model_fields}


def changed_keys(spec: StudySpec, config: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The file that a study's command names, and the keys that differ in it from a configuration.

    Keys count wherever dsopt would have moved them to as it read the file, and what is for dsopt itself does not.

    Args:
        spec: the study.
        config: what the file may have, such as the study's own configuration.

    Returns:
        No keys: nothing differs, or nobody knows: the file is not on this node, cannot be read, or was never read.
    """
    where, cwd = f"study '{spec.name}'", Path(spec.cwd)
    try:
        named = config_of(spec.launch, cwd, where)
        if named is None or not is_file(path := cwd / named):
            return "", []
        now = _values(read_config(path)[0])
    except (DsoptError, OSError):
        return "", []
    given = _values(config)
    return named, sorted(key for key in now.keys() | given.keys() if now.get(key) != given.get(key))


def _values(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The values of a configuration by their paths, those of ZeRO's section without it."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        here = f"{path}.{key}" if path else str(key)
        if here in _OF_DSOPT:
            continue
        if isinstance(value, Mapping):
            found |= _values(value, "" if f"{here}." == ZERO else here)
        else:
            found[here] = value
    return found
