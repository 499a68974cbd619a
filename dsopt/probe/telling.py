"""Tells the worker what a script saves and writes anew, which goes with the run."""

import contextlib
import itertools
import os
import platform
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from dsopt.probe.aside import open_file
from dsopt.probe.places import may_be_plain
from dsopt.probe.territory import Territory
from dsopt.protocol.birth import birth_ns
from dsopt.protocol.checkpoint_names import LOCK
from dsopt.protocol.events import EventWriter, FilePath, Found, Saved
from dsopt.protocol.file_events import being_made, being_saved, saved_file

DEPTH: Final = 3  # of a folder of checkpoints
_MOST_EARLY: Final = 1000  # more is data that the script prepares
_MOST_FOUND: Final = 1000


class Telling:
    """What may be trained weights that somebody goes on from, in events, and what the script writes beside them.

    Args:
        writer: of this rank's events.
        territory: what lies where.
        is_old: whether a file is the user's, of which nothing is told.
        is_new_folder: whether a run has made a folder that is there, this one or one beside it.
    """

    def __init__(
        self,
        writer: EventWriter,
        territory: Territory,
        is_old: Callable[[Path], bool],
        is_new_folder: Callable[[Path], bool],
    ) -> None:
        self._writer = writer
        self._territory = territory
        self._is_old = is_old
        self._is_new_folder = is_new_folder
        self._told: set[tuple[Path, str | bool]] = set()  # files written to, by number or birth, and folders
        self._made: set[Path] = set()  # folders of what was left out
        self._begun: set[Path] = set()  # the folders next above those that were made before the first step
        self._found: set[Path] = set()  # folders that the script wanted to make
        self._early = 0  # what was told before the first step

    def begins(self, path: Path) -> None:
        """Tells of a file that is about to be written: the worker may kill this process meanwhile.

        Raises:
            OSError: nothing can be told, as on a full disk; the file would stay.
        """
        if self._counts(path) and may_be_plain(path) and not self._is_old(path):
            event = None
            self._tell_of_folders(path)
            self.is_making(path)
            with contextlib.suppress(OSError):
                os.close(open_file(path, os.O_WRONLY | os.O_CREAT, 0o666))  # as `open` does; now it has a number
                event = being_saved(self._writer.rank, path)
            self._tell(path, event)

    def comes(self, path: Path, now: Path) -> None:
        """Tells of a file of the run's that is about to be moved to a path, or named so, too.

        Raises:
            OSError: as `begins`.
        """
        if self._counts(path) and not self._is_old(now):
            event = None
            with contextlib.suppress(OSError):
                event = being_saved(self._writer.rank, path, now)
            self._tell(path, event)

    def has_saved(self, path: Path, since: int, *, is_beside_users: bool = False) -> None:
        """Tells of a file or link that the script has saved there since, in nanoseconds since the epoch.

        `is_beside_users`: among the user's own, where it goes with the run from before its first step, too: a training
        would go on from both together.
        """
        with contextlib.suppress(OSError):  # another rank has removed it
            found = path.lstat()
            is_plain = stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)
            counts = self._counts(path) or (is_beside_users and self._territory.holds_results(path))
            if counts and is_plain and found.st_mtime_ns >= since and not self._is_old(path):
                self._tell(path, saved_file(self._writer.rank, path))
            elif stat.S_ISLNK(found.st_mode) and self._may_tell_of(path) and not self._is_old(path):
                self._tell_early(path)  # it goes with what it names

    def writes(self, path: Path, now: Path | None = None) -> None:
        """Tells of a file that is not the user's, and that the script writes to by other ways.

        `now`: where it still is, if it is about to be moved to the path.
        """
        with contextlib.suppress(OSError):
            there = now or path
            counts = self._counts(path) or not self._made.isdisjoint(path.parents)
            is_early = not counts and self._may_tell_of(path) and self._goes_early(path)
            key = path, f"{birth_ns(there) or there.lstat().st_ino}{' early' * is_early}"  # later it is told again
            if (counts or is_early) and key not in self._told and not self._is_old(there):
                self._told.add(key)
                self._early += is_early
                event = being_saved(self._writer.rank, path, there)
                self._writer.emit(replace(event, is_plain=True, is_early=is_early))

    def makes_folder(self, folder: Path) -> list[Path]:
        """Makes a folder, and those above it, as a save would. Returns those that go with the run."""
        made = [path for path in (folder, *folder.parents) if not os.path.lexists(path) or self._is_new_folder(path)]
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            self._made.add(folder)
            for path in made:
                self.has_made(path, is_above=path != folder)
        return made

    def is_making(self, path: Path, *, is_folder: bool = False) -> None:
        """Tells of what is about to be made: the worker may kill this process before it tells that it is there."""
        counts = self._may_tell_of(path) and (self._writer.has_stepped or is_folder or self._goes_early(path))
        if not counts or os.path.lexists(path):
            return
        with contextlib.suppress(OSError):  # a full disk; if it matters, who tells next fails
            self._writer.emit(replace(being_made(self._writer.rank, path), is_plain=not is_folder))

    def finds(self, folder: Path) -> None:
        """Tells once of a folder that the script wanted to make, and that is there: another run may have made it."""
        is_new = folder not in self._found and len(self._found) < _MOST_FOUND
        if is_new and self._territory.holds_results(folder) and not self._territory.is_temporary(folder):
            self._found.add(folder)
            with contextlib.suppress(OSError):
                self._writer.emit(Found(rank=self._writer.rank, path=FilePath(str(folder)), host=platform.node()))

    def made_folder(self, folder: Path, now: Path | None = None) -> None:
        """Tells of a folder that the script has made, or is about to move there: it goes if nothing is in it.

        A script that ends before it saves there would leave it, and the next would take it for a checkpoint. With one
        that was made before the first step, what the script wrote there goes if weights did.
        """
        if self._counts(folder):
            self.has_made(folder, now, is_above=True)
        elif self._may_tell_of(folder):
            self._begun.update((folder.parent, folder.parent.parent))
            with contextlib.suppress(OSError):
                self._tell_early(folder, now)

    def _may_tell_of(self, path: Path) -> bool:
        """Whether it may be of results, from before the first step, too: then libraries make much that is temporary."""
        if self._writer.has_stepped:
            return self._territory.holds_results(path)
        is_other = self._early > _MOST_EARLY or self._territory.is_temporary(path)
        return not is_other and self._territory.holds_results(path)

    def _tell_early(self, path: Path, now: Path | None = None) -> None:
        self._early += 1
        self._writer.emit(replace(being_saved(self._writer.rank, path, now), is_plain=True, is_early=True))

    def _goes_early(self, path: Path) -> bool:
        """Whether a file from before the first step may go with the run: in or beside its folders, or as a lock."""
        return path.parent in self._begun or LOCK.fullmatch(path.name) is not None or self._is_new_folder(path.parent)

    def has_made(self, folder: Path, now: Path | None = None, *, is_above: bool = False) -> None:
        """Tells of a folder that goes with the run, before its first step, too: a training may go on from one.

        `is_above`: it is only above one that a save makes, and goes if nothing is in it.
        """
        with contextlib.suppress(OSError):  # another rank has moved it
            self._writer.emit((being_saved if is_above else saved_file)(self._writer.rank, folder, now))

    def _tell(self, path: Path, event: Saved | None) -> None:
        """Tells of a file, and of folders that the script has made for it: without it, they say that there is one."""
        if event is None:
            return
        self._tell_of_folders(path)
        self._writer.emit(event)

    def _tell_of_folders(self, path: Path) -> None:
        for folder in itertools.takewhile(self._is_new_folder, path.parents):
            is_above = folder != path.parent
            if (folder, is_above) not in self._told:
                self._told.add((folder, is_above))
                self.has_made(folder, is_above=is_above)

    def _counts(self, path: Path) -> bool:
        return self._writer.has_stepped and self._territory.holds_results(path)
