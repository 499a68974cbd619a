"""One run of a comparison, as part of the study's spec."""

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator

from dsopt.study.strict import Strict

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OWN_NAMES: Final = ("baseline", "profile", "yours")


def check_name(name: str) -> str:
    """Refuses a name that cannot be a folder's, or that dsopt gives to its own runs."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid name; expected at most 100 letters, digits, '.', '_' and '-'")
    if name in _OWN_NAMES:
        raise ValueError(f"dsopt calls one of its own runs '{name}'; choose another name")
    return name


class ComparedRun(Strict):
    """One configuration to measure in turn with the user's own.

    Attributes:
        name: what the table calls it.
        command: its whole launch command.
        ds_config: DeepSpeed's configuration, which replaces the one that the command names; without it, the command
            trains without DeepSpeed.
    """

    name: Annotated[str, AfterValidator(check_name)]
    command: str
    ds_config: dict[str, Any] | None = None
