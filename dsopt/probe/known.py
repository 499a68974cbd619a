"""What one process of a run knows of the files that its script saves, moves and removes."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from dsopt.probe.aside import Aside
from dsopt.probe.places import is_folder
from dsopt.probe.saved_by_run import SavedByRun
from dsopt.probe.telling import Telling
from dsopt.probe.territory import Territory
from dsopt.probe.users import Users
from dsopt.protocol.birth import has_birth
from dsopt.protocol.events import EventWriter
from dsopt.protocol.file_events import identity_of
from dsopt.protocol.run_dir import RunDir


class Known:
    """What is known of files, in one process.

    Args:
        say: told what is skipped, and where to.

    Attributes:
        own: what the script itself has saved in this run.
        made: what looks like a checkpoint, and it has made by itself.
        skipped: what it believes to have saved there, and has not.
        stayed: folders with the run's own, which it believes to have moved or removed.
    """

    def __init__(self, say: Callable[[str, object], None]) -> None:
        self.say = say
        self.own: set[Path] = set()
        self.made: set[Path] = set()
        self.skipped: set[Path] = set()
        self.stayed: set[Path] = set()
        # what it has written by other ways than functions that save, and folders that it has made, each as it was then
        self._written: dict[Path, tuple[str, str]] = {}
        self._folders: dict[Path, tuple[str, str]] = {}

    def activate(self, writer: EventWriter, run_dir: RunDir) -> None:
        """From now on, this process is a rank of a run."""
        working = Path(os.path.realpath(Path.cwd()))
        self.territory = Territory(working, run_dir.path)
        self.aside = Aside(writer, run_dir, working, self.territory)
        self.telling = Telling(writer, self.territory, self.aside.is_old, self.is_new_folder)
        self.saved_by_run = SavedByRun(run_dir)
        run_folder = Path(os.path.realpath(run_dir.path))
        self.users = Users(self.aside, self.territory, run_folder, self.own, self.made, self.saved_by_run)

    def skips(self, path: Path, folder: Path | None = None) -> None:
        """Takes note of where a script believes to have saved, maybe in a folder: it may remove or move that later."""
        self.skipped.add(path)
        if folder is not None:
            self.own.update(self.telling.makes_folder(folder))

    def was_skipped(self, place: Path) -> bool:
        """Whether nothing is there that the script believes to have saved."""
        return not os.path.lexists(place) and not self.skipped.isdisjoint((place, *place.parents))

    def owns(self, path: Path, *, is_beside_users: bool = False) -> None:
        """What is there is of this run, and goes with it."""
        self.own.add(path)
        if is_folder(path):
            self.telling.has_made(path)
        else:
            self.telling.has_saved(path, since=0, is_beside_users=is_beside_users)

    def is_new_folder(self, path: Path) -> bool:
        """Whether a run has made a folder that is there: by its birth, or without births this process."""
        with contextlib.suppress(OSError):  # another rank removes it
            if is_folder(path) and not has_birth(path):
                made = self._folders.get(path)
                return made is not None and made == identity_of(path)
            return self.aside.is_new_folder(path)
        return False

    def makes(self, folder: Path) -> None:
        """The script has made a folder."""
        _note(self._folders, folder)
        self.telling.made_folder(folder)

    def has_written(self, path: Path) -> bool:
        """Whether it is a file that this process has written, and not one that has come there since."""
        written = self._written.get(path)
        return written is not None and written == identity_of(path) and not self.aside.is_old(path)

    def moves(self, old: Path, new: Path) -> None:
        """What the script has written and made goes with what it has moved."""
        below, has_more = f"{old}{os.sep}", is_folder(new)
        for known in (self._written, self._folders):
            known.pop(new, None)
            for path in [p for p in tuple(known) if p == old or str(p).startswith(below)] if has_more else [old]:
                if (identity := known.pop(path, None)) is not None:
                    known[new / path.relative_to(old)] = identity

    def is_saved(self, path: Path) -> bool:
        """Whether the run has saved a file, in this process or another, or believes that it has."""
        return path in self.own or path in self.skipped or self.saved_by_run.has(path)

    def writes(self, path: Path) -> None:
        """The script writes to a file that is not the user's, or changes its date."""
        if path in self.own:
            self.telling.begins(path)
        else:
            _note(self._written, path)
            self.telling.writes(path)


def _note(known: dict[Path, tuple[str, str]], path: Path) -> None:
    identity = identity_of(path)
    if identity is not None:
        known[path] = identity
