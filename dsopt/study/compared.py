"""One run of a comparison, as the study's spec has it."""

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator

from dsopt.study.strict import Strict

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OWN_NAMES: Final = ("baseline", "profile", "yours")


def check_name(name: str) -> str:
    """A name that is no folder of its own, or that dsopt gives a run, cannot be given to another."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name; expected letters, digits, '.', '_' and '-', at most 100 of them")
    if name in _OWN_NAMES:
        raise ValueError(f"'{name}' is what dsopt calls a run of its own; choose another name")
    return name


class ComparedRun(Strict):
    """One configuration that is measured beside the user's own.

    Attributes:
        name: what the table calls it.
        command: its whole launch command.
        ds_config: DeepSpeed's configuration, in place of the one that the command names; None: the command trains
            without DeepSpeed.
    """

    name: Annotated[str, AfterValidator(check_name)]
    command: str
    ds_config: dict[str, Any] | None = None
