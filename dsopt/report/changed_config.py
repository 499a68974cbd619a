"""A configuration file that is another one than a study measures, in words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.protocol.text import plain_text
from dsopt.study.autotuning import Autotuning
from dsopt.study.documents import is_file
from dsopt.study.folders import OPTIMAL, find_results_folder
from dsopt.study.given_config import named_config, read_config
from dsopt.study.space import ZERO
from dsopt.study.spec import StudySpec

_MOST: Final = 3  # keys that are named
_OF_DSOPT: Final = {"autotuning", *Autotuning.model_fields}


def changed_config(spec: StudySpec) -> str | None:
    """What to know if the file that the command names differs from what the study was created with.

    It reads the file as it is now. One that has the study's optimum is the result, taken over by the user. None, too,
    where nobody knows: the file is not on this node, cannot be read, or was never read.
    """
    file = named_config(spec)
    now, given = _values_in(Path(spec.cwd) / file) if file else None, _values(spec.ds_config)
    if now is None:
        return None
    keys = sorted(key for key in now.keys() | given.keys() if now.get(key) != given.get(key))
    folder = find_results_folder(spec) if keys else None
    if not keys or (folder is not None and now == _values_in(folder / OPTIMAL)):
        return None
    more = len(keys) - _MOST
    listed = ", ".join(plain_text(key) for key in keys[:_MOST]) + (f" and {more} more" if more > 0 else "")
    return (
        f"{file} is not what study '{spec.name}' measures: {listed} differ{'s' * (len(keys) == 1)}. The study keeps "
        "the configuration that it was created with, and its factors and files are of that. For the file as it is now, "
        "create another study (another --name)."
    )


def _values_in(path: Path) -> dict[str, Any] | None:
    try:
        return _values(read_config(path)[0]) if is_file(path) else None
    except (DsoptError, OSError):
        return None


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
