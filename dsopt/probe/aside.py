"""Lets a script remove, move and replace the user's files without losing them: they are put back after the run.

What would be removed or replaced is moved into a folder of dsopt's on the same file system, and what the script moves
is noted; each in an event before it happens. `launch/put_back.py` undoes it.
"""

import os
import time
import uuid
from pathlib import Path
from typing import Final

from dsopt.protocol.events import EventWriter, moved_file
from dsopt.protocol.run_dir import ASIDE, RunDir

_rename: Final = os.rename  # as it is before anything wraps it


class Aside:
    """What a script does to the user's files, in one process.

    Args:
        writer: of this rank's events.
        run_dir: of the run.
        folder: the working folder.
        began_ns: what is older was there before the run.
    """

    def __init__(self, writer: EventWriter, run_dir: RunDir, folder: Path, began_ns: int) -> None:
        self._writer = writer
        self._aside = run_dir.aside
        self._working = folder
        self._began_ns = began_ns
        self._noted: set[Path] = set()  # where the user's have gone by moves of the script

    def take(self, path: Path) -> Path:
        """Moves what a script removes or replaces out of its way, and says where it is now.

        Raises:
            OSError: it cannot be moved.
        """
        device = path.lstat().st_dev
        for folder in (self._aside, self._working / f".{ASIDE}", path.parent.parent / f".{ASIDE}"):
            if _device_of(folder.parent) == device:  # a rename keeps a file as it is, a copy would not
                folder.mkdir(mode=0o700, exist_ok=True)
                kept = folder / uuid.uuid4().hex
                self._tell(path, kept)
                _rename(path, kept)
                return kept
        raise OSError(f"no folder on the file system of {path}")

    def give_back(self, kept: Path, path: Path) -> None:
        """Undoes that at once: the script did not replace it after all."""
        _rename(kept, path)

    def moves(self, old: Path, new: Path) -> None:
        """Notes what a script is about to move."""
        if self.is_old(old):
            self._noted.add(new)
            self._tell(old, new)

    def has_noted(self, path: Path) -> bool:
        """Whether something of the user's has been moved to this place, below it or above it."""
        return any(path == to or path in to.parents or to in path.parents for to in self._noted)

    def is_old(self, path: Path) -> bool:
        """Whether something was there before the run: a file, a link, or a folder with one."""
        try:
            if not path.is_dir() or path.is_symlink():
                return path.lstat().st_mtime_ns < self._began_ns
            return any(self.is_old(inner) for inner in path.iterdir())
        except OSError:
            return False

    def _tell(self, path: Path, to: Path) -> None:
        self._writer.emit(moved_file(self._writer.rank, path, to, path.lstat(), time.time_ns()))


def _device_of(folder: Path) -> int | None:
    try:
        return folder.stat().st_dev
    except OSError:
        return None
