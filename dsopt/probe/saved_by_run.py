"""What processes of a run have saved, and those of runs of its study beside it: none of that is the user's.

One process saves beside a checkpoint, and another puts it into its place.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from dsopt.probe.aside import began_ns
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import Saved
from dsopt.protocol.file_events import identity_of
from dsopt.protocol.run_dir import RunDir

_LOOK_SECONDS: Final = 1.0  # so often, it looks for runs that have begun since


class SavedByRun:
    """The files that runs have told to have saved or written, by number and birth, read off their events as needed.

    Args:
        run_dir: of this run.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._readers = {run_dir.path: EventReader(run_dir)}
        self._looked = 0.0
        self._ended: set[Path] = set()
        self._saved: set[tuple[str, str]] = set()
        self._written: set[tuple[str, str]] = set()  # by this run

    def has(self, path: Path) -> bool:
        """Whether a run has saved a file. Where the file system tells no births, nobody can say."""
        return bool(self.among([path]))

    def among(self, paths: Iterable[Path]) -> set[Path]:
        """Which files runs have saved."""
        self._read()
        return {path for path in paths if self._saved and identity_of(path) in self._saved}

    def no_users(self, paths: Iterable[Path]) -> set[Path]:
        """Which files runs have saved, or this one has written by other ways."""
        self._read()
        known = self._saved | self._written
        return {path for path in paths if known and identity_of(path) in known}

    def _read(self) -> None:
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            with contextlib.suppress(OSError):  # the script has removed them all
                for run_dir in _beside(self._run_dir):
                    if run_dir.path not in self._ended:
                        self._readers.setdefault(run_dir.path, EventReader(run_dir))
            over = {path for path in self._readers if path != self._run_dir.path and RunDir(path).undone.exists()}
        else:
            over = set()
        for path, reader in tuple(self._readers.items()):
            for event in reader.read():
                if isinstance(event, Saved) and event.born and not event.is_plain:
                    self._saved.add((event.inode, event.born))
                elif isinstance(event, Saved) and event.born and path == self._run_dir.path:
                    self._written.add((event.inode, event.born))
        for path in over:  # it tells nothing more
            self._readers.pop(path, None)  # another thread
        self._ended |= over


def _beside(run_dir: RunDir) -> Iterator[RunDir]:
    """The other runs in the same results folder whose files have come since the first of them began."""
    since_ns = began_ns(run_dir)
    for folder in os.scandir(run_dir.path.parent):
        with contextlib.suppress(OSError):
            if folder.stat(follow_symlinks=False).st_mtime_ns >= since_ns and folder.path != str(run_dir.path):
                yield RunDir(folder.path)
