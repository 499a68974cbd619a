"""Names in a study that become parts of paths, of names in the database, or of an environment."""

import re
from typing import Final

from dsopt.study.secrets import OWN_ACCESS

LONGEST: Final = 200  # of a flag or key: part of paths, and of names in the database
_VARIABLE: Final = re.compile(r"[A-Za-z_*][A-Za-z0-9_*]*")


def flag_names(value: object) -> object:
    """Names of the script's flags, with or without their dashes."""
    if not isinstance(value, list) or not all(isinstance(flag, str) and flag.strip() for flag in value):
        raise ValueError("expected a list of the script's flags, such as [--save-dir]")
    return [flag if flag.startswith("-") else f"--{flag}" for flag in map(str.strip, value)]


def variable_names(value: object) -> object:
    """Names of environment variables, or patterns of names with `*`."""
    if not isinstance(value, list) or not all(isinstance(name, str) and _VARIABLE.fullmatch(name) for name in value):
        raise ValueError("expected a list of variables, such as [HF_TOKEN, AWS_*]")
    if own := sorted(OWN_ACCESS & set(value)):
        raise ValueError(f"{own[0]} is for dsopt alone; the script never gets it. Leave it out")
    return value
