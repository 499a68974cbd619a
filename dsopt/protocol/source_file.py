"""How a file of a script is named and told from later versions of it."""

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


def contents_digest(file: Path) -> str:
    """What a file holds, as the beginning of its SHA-256; empty if it cannot be read."""
    try:
        with open_given(file) as content:
            return hashlib.sha256(content.read(_MOST_BYTES)).hexdigest()[:_DIGITS]
    except OSError:
        return ""
