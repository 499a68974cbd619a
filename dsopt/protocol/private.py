"""Files and folders that only their owner may read, whatever the umask is. The training process imports it, too."""

import os
from pathlib import Path
from typing import BinaryIO, Final, TextIO

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def make_private(folder: Path, *, exist_ok: bool = True) -> None:
    """Creates a folder, and the folders above it that are missing. It leaves a folder as it is that is there.

    Raises:
        FileExistsError: there is a file of that name, or with `exist_ok=False` a folder.
    """
    missing = []
    above = folder.parent
    while not above.exists() and above != above.parent:
        missing.append(above)
        above = above.parent
    for path in reversed(missing):
        path.mkdir(FOLDER_MODE, exist_ok=True)
    folder.mkdir(FOLDER_MODE, exist_ok=exist_ok)


def write_private(path: Path, text: str) -> None:
    """Writes a text file anew.

    Raises:
        OSError: it cannot be written, or is a pipe that nobody reads. It names the file.
    """
    try:
        with open(path, "w", encoding="utf-8", opener=lambda name, flags: _opener(name, flags | os.O_NONBLOCK)) as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(text)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk has none
        raise


def create_private(path: Path) -> TextIO:
    """A new text file, open for writing.

    Raises:
        FileExistsError: there is one.
    """
    return open(path, "x", encoding="utf-8", opener=_opener)


def append_private(path: Path) -> BinaryIO:
    """A file, open for what is appended to it; created where it is missing."""
    return open(path, "ab", opener=_opener)


def append_lines(path: Path) -> TextIO:
    """A text file to which whole lines are appended; created where it is missing."""
    return open(path, "a", encoding="utf-8", buffering=1, opener=_opener)


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
