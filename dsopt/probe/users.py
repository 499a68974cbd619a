"""What is the user's, and would be lost by what a script is about to do."""

import contextlib
from collections.abc import Callable, Set
from pathlib import Path

from dsopt.probe.aside import Aside
from dsopt.probe.places import files_at
from dsopt.probe.saved_by_run import SavedByRun
from dsopt.probe.telling import DEPTH
from dsopt.probe.territory import Territory
from dsopt.protocol.checkpoint_names import FILE


class Users:
    """What is the user's, for one process of a run.

    Args:
        aside: knows what was there before the run.
        territory: what lies where.
        run_folder: that of the run, links followed.
        own: what the script itself has saved in this run, now and later.
        made: what looks like a checkpoint, and it has made by itself.
        saved: what other processes of the run have saved, too, and runs beside it.
    """

    def __init__(
        self,
        aside: Aside,
        territory: Territory,
        run_folder: Path,
        own: Set[Path],
        made: Set[Path],
        saved: SavedByRun,
    ) -> None:
        self._aside = aside
        self._territory = territory
        self._run_folder = run_folder
        self._own = own
        self._made = made
        self._saved = saved

    def would_be_lost(self, place: Path, counts: Callable[[Path], bool]) -> bool:
        """Whether something of the user's is there that no other name keeps.

        What looks like a checkpoint is, wherever it is, if `counts` is true for it.
        """
        if self._aside.is_link(place):
            return False
        if not self._aside.is_exempt(place) and self._aside.is_old(place):
            return True
        return not self._territory.is_cached(place) and self._is_checkpoint(place, counts)

    def would_be_replaced(self, path: Path, *, is_saved: bool) -> bool:
        """Whether a file of the user's is there; if what comes was saved by this run, any that is not the run's is."""
        is_others = is_saved and self.is_users(path) and not self._territory.is_cached(path)
        return (is_others and not self._saved.no_users([path])) or self.would_be_lost(path, self.is_theirs)

    def has_others(self, path: Path) -> bool:
        """Whether there is a checkpoint, in a folder or itself, that came during the run and not from it.

        It may be of another training of the user's.
        """
        if not self.is_users(path):
            return False
        files = [*path.iterdir()] if path.is_dir() else [path]
        mine = self._own | self._made
        others = {
            file for file in files if FILE.fullmatch(file.name) and file not in mine and not self._aside.is_old(file)
        }
        return bool(others - self._saved.no_users(others))

    def is_users(self, path: Path) -> bool:
        """Whether there is a file or folder with content that this run has not saved."""
        if path.is_relative_to(self._run_folder) or (path in self._own and not self._aside.is_old(path)):
            return False
        try:
            if path.is_dir():
                return any(file not in self._own for file in path.iterdir())
            return path.is_file() and path.stat().st_size > 0
        except OSError:  # closed to us, or gone meanwhile
            return False

    def _is_checkpoint(self, path: Path, counts: Callable[[Path], bool]) -> bool:
        """Whether something of the user's is there that looks like a checkpoint, a folder with one, or a link to it.

        Of the files that do, only those may be one for which `counts` is true.
        """
        if not self.is_users(path):
            return False
        with contextlib.suppress(OSError):
            return any(
                FILE.fullmatch(file.name) and file not in self._own and counts(file)
                for file in files_at(path.resolve(), DEPTH)
            )
        return False

    def is_theirs(self, path: Path) -> bool:
        """Whether a file may be the user's: one that is made during a run may be of another training in this folder."""
        is_temporary = "tmp" in path.name.lower() and not self._aside.is_old(path)
        return path not in self._made and not is_temporary and not self._saved.no_users([path])
