"""Finds the launcher program on this machine."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError

_LONGEST_LINE: Final = 4096


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


def python_of(program: Path) -> Path | None:
    """The Python that a launcher program runs with: itself, what its first line names, or the one beside it.

    None if dsopt cannot tell: then it is a program of another kind.
    """
    if program.name.startswith("python"):
        return program
    with program.open("rb") as file:
        first = file.readline(_LONGEST_LINE).decode("utf-8", errors="replace")
    words = first[2:].split() if first.startswith("#!") else []
    if len(words) == 2 and Path(words[0]).name == "env":
        found = shutil.which(words[1])
        words = [found] if found else []
    if words and Path(words[0]).name.startswith("python"):
        return Path(words[0])
    beside = program.parent / "python"
    return beside if beside.exists() else None
