"""Lets a script remove, move and replace the user's files without losing them: they are put back after the run.

What would be removed or replaced is moved into the run's folder, and what the script moves is noted; each in an event
before it happens. `launch/put_back.py` undoes it.
"""

import os
import time
import uuid
from pathlib import Path
from typing import Any, Final

from dsopt.protocol.events import EventWriter, moved_file
from dsopt.protocol.run_dir import RunDir

_DEPTH: Final = 3  # of a folder
_MOST: Final = 1000  # entries of a folder to look at
_rename = os.rename  # as it is before anything wraps it


class Aside:
    """What a script does to the user's files, in one process.

    Args:
        writer: of this rank's events.
        run_dir: of the run.
        began_ns: what is older was there before experiments began.
    """

    def __init__(self, writer: EventWriter, run_dir: RunDir, began_ns: int) -> None:
        self._writer = writer
        self._folder = run_dir.aside
        self._began_ns = began_ns

    def removes(self, path: Path) -> bool:
        """Moves what a script removes or replaces out of its way; false: it is none of the user's, or cannot be."""
        if not self.is_old(path):
            return False
        kept = self._folder / uuid.uuid4().hex
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if self._folder.stat().st_dev != path.lstat().st_dev:
                kept = path.with_name(f".{kept.name}.dsopt")  # a rename keeps a file as it is, a copy would not
            self._tell(path, kept)
            _rename(path, kept)
        except OSError:
            return False
        return True

    def moves(self, old: Path, new: Path) -> None:
        """Notes what a script is about to move."""
        if self.is_old(old):
            self._tell(old, new)

    def is_old(self, path: Path) -> bool:
        """Whether something was there before experiments began: a file, a link, or a folder with one."""
        left = [_MOST]

        def is_any_old(place: Path, depth: int) -> bool:
            left[0] -= 1
            if not place.is_dir() or place.is_symlink():
                return place.lstat().st_mtime_ns < self._began_ns
            return depth > 0 and any(left[0] > 0 and is_any_old(inner, depth - 1) for inner in place.iterdir())

        try:
            return os.path.lexists(path) and is_any_old(path, _DEPTH)
        except OSError:
            return False

    def _tell(self, path: Path, to: Path) -> None:
        self._writer.emit(moved_file(self._writer.rank, path, to, path.lstat(), time.time_ns()))


def began_ns(value: str | None, slack_ns: int) -> int:
    """When experiments began, in nanoseconds since the epoch, as a worker tells; else now."""
    told: Any = value if value is not None and value.isdecimal() else time.time_ns()
    return int(told) - slack_ns
