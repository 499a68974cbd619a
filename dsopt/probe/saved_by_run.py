"""What all processes of a run have saved: one saves beside a checkpoint, and another puts it into its place."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from dsopt.protocol.birth import birth_ns
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import Saved
from dsopt.protocol.run_dir import RunDir


class SavedByRun:
    """The files that a run has told to have saved, by number and birth, read off its events as far as needed.

    Args:
        run_dir: of the run.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self._events = EventReader(run_dir)
        self._saved: set[tuple[str, str]] = set()

    def has(self, path: Path) -> bool:
        """Whether a file is one of them. Where the file system tells no births, nobody can say."""
        return bool(self.among([path]))

    def among(self, paths: Iterable[Path]) -> set[Path]:
        """Which files are some of them."""
        for event in self._events.read():
            if isinstance(event, Saved) and event.born and not event.is_plain:
                self._saved.add((event.inode, event.born))
        return {path for path in paths if self._saved and _identity(path) in self._saved}


def _identity(path: Path) -> tuple[str, str] | None:
    with contextlib.suppress(OSError):
        return str(path.lstat().st_ino), str(birth_ns(path))
    return None
