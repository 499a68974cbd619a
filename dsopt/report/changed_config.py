"""A configuration file that is another one than a study measures, in words."""

from collections.abc import Mapping
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.protocol.text import plain_text
from dsopt.study.changed_config import changed_keys
from dsopt.study.folders import OPTIMAL, find_results_folder
from dsopt.study.given_config import read_config
from dsopt.study.spec import StudySpec

_MOST: Final = 3  # keys that are named


def changed_config(spec: StudySpec) -> str | None:
    """What to know if the file that the command names differs from what the study was created with.

    It reads the file as it is now. One that has the study's optimum is the result, taken over by the user.
    """
    file, keys = changed_keys(spec, spec.ds_config)
    if not keys or ((best := _optimum(spec)) is not None and not changed_keys(spec, best)[1]):
        return None
    more = len(keys) - _MOST
    listed = ", ".join(plain_text(key) for key in keys[:_MOST]) + (f" and {more} more" if more > 0 else "")
    return (
        f"{file} is not what study '{spec.name}' measures: {listed} differ{'s' * (len(keys) == 1)}. The study keeps "
        "the configuration that it was created with, and its factors and files are of that. For the file as it is now, "
        "create another study (another --name)."
    )


def _optimum(spec: StudySpec) -> Mapping[str, Any] | None:
    folder = find_results_folder(spec)
    try:
        return None if folder is None else read_config(folder / OPTIMAL)[0]
    except (DsoptError, OSError):
        return None
