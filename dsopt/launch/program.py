"""Finds the launcher program on this machine."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from dsopt.errors import DsoptError


def find_launcher(name: str, cwd: Path) -> Path:
    """The launcher program: on PATH, in the folder of dsopt's Python, or at its path, relative to `cwd`.

    Raises:
        DsoptError: it is in none of these places.
    """
    beside = Path(sys.executable).parent
    if os.sep in name:
        found = shutil.which(str(cwd / name))
    else:
        found = shutil.which(name) or shutil.which(name, path=str(beside))
    if found is None and os.sep in name:
        raise DsoptError(f"command: the launcher '{name}' does not exist, or is not a program. Check its path.")
    if found is None:
        raise DsoptError(
            f"command: the launcher '{name}' is neither on PATH nor in {beside}. "
            "Install DeepSpeed there ('pip install deepspeed'), or activate its environment."
        )
    return Path(found)


def path_with(environment: Mapping[str, str], program: Path) -> str:
    """An environment's PATH, and behind it the folder of a program.

    Compilers of extensions look for `ninja` on PATH; it may be only in the program's own environment. What the user's
    PATH has comes first: a `ninja` of another version compiles all that theirs has compiled once more.
    """
    return f"{environment.get('PATH', os.defpath)}{os.pathsep}{program.parent}"
