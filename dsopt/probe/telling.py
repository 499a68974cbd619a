"""Tells the worker what a script saves anew, which it removes after the run."""

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dsopt.probe.places import files_at, may_be_plain
from dsopt.probe.territory import Territory
from dsopt.protocol.events import EventWriter
from dsopt.protocol.file_events import being_saved, saved_file

DEPTH: Final = 3  # of a folder of checkpoints


class Telling:
    """What may be trained weights that somebody goes on from, in events.

    Args:
        writer: of this rank's events.
        territory: what lies where.
    """

    def __init__(self, writer: EventWriter, territory: Territory) -> None:
        self._writer = writer
        self._territory = territory

    def begins(self, path: Path) -> None:
        """Tells of a file that is about to be written: the worker may kill this process meanwhile."""
        if self._counts(path) and may_be_plain(path):
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))  # as `open` does; now it has a number
                self._writer.emit(being_saved(self._writer.rank, path))

    def has_saved(self, path: Path, since: int, *, is_beside_users: bool = False) -> None:
        """Tells of what the script has saved there since, in nanoseconds since the epoch.

        `is_beside_users`: among the user's own, where it goes with the run from before its first step, too: a training
        would go on from both together.
        """
        with contextlib.suppress(OSError):  # another rank has removed it
            for file in files_at(path, DEPTH):
                found = file.lstat()
                is_plain = stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)
                counts = self._counts(file) or (is_beside_users and self._territory.holds_results(file))
                if counts and is_plain and found.st_mtime_ns >= since:
                    self._writer.emit(saved_file(self._writer.rank, file))

    def makes_folder(self, folder: Path, is_new: Callable[[Path], bool]) -> list[Path]:
        """Makes a folder, and those above it, as a save would. Returns those that go with the run.

        `is_new`: of one that is there, whether a run has made it, this one or one beside it.
        """
        made = [path for path in (folder, *folder.parents) if not os.path.lexists(path) or is_new(path)]
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            for path in made:
                self.has_made(path, is_above=path != folder)
        return made

    def has_made(self, folder: Path, *, is_above: bool = False) -> None:
        """Tells of a folder that goes with the run, before its first step, too: a training may go on from one.

        `is_above`: it is only above one that a save makes, and goes if nothing is in it.
        """
        with contextlib.suppress(OSError):  # another rank has moved it
            self._writer.emit((being_saved if is_above else saved_file)(self._writer.rank, folder))

    def _counts(self, path: Path) -> bool:
        return self._writer.has_stepped and self._territory.holds_results(path)
