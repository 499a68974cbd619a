"""Finds the launcher program on this machine."""

import os
import shutil
import sys
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
