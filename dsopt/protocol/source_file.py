"""How a file of a script, or a folder of them, is named and told from later versions of it."""

import hashlib
import os
from pathlib import Path
from typing import Final

from dsopt.protocol.given import open_given

_DIGITS: Final = 16
_MOST_BYTES: Final = 1 << 24


def name_of(file: Path, folder: Path) -> str:
    """A file's path from the working folder, if it lies there; else all of it."""
    path = Path(os.path.abspath(folder / file))  # noqa: PTH100 - keeps links, as the user does
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def contents_digest(path: Path) -> str:
    """What a file holds, or all modules in a folder, as the beginning of a SHA-256; empty if it cannot be read."""
    try:
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        found = hashlib.sha256()
        for file in files:
            with open_given(file) as content:
                found.update(content.read(_MOST_BYTES))
        return found.hexdigest()[:_DIGITS] if files else ""
    except OSError:
        return ""
