"""What a script believes to have done with the user's files, which stayed where they were."""

import contextlib
import os
from pathlib import Path

from dsopt.probe.aside import Aside


class Pretended:
    """What it believes, in one process."""

    def __init__(self) -> None:
        self._removed: set[Path] = set()
        self._remade: set[Path] = set()  # of what is in these, what is there as it believes
        self._moved_to: set[Path] = set()
        self._copied_to: set[Path] = set()  # by the last copy to there

    def removes(self, place: Path) -> None:
        """It believes to have removed something, with all that is in it."""
        self._removed.add(place)
        self._remade.difference_update([path for path in tuple(self._remade) if path.is_relative_to(place)])

    def moves(self, old: Path, new: Path) -> None:
        """It believes to have moved something."""
        self.removes(old)
        self._moved_to.add(new)

    def moves_back(self, old: Path, new: Path) -> None:
        """It believes to have moved something back to where it still is."""
        self._moved_to.discard(old)
        self._removed.discard(new)

    def makes(self, place: Path) -> None:
        """It has made something, perhaps where it believes to have removed what was there."""
        if self.is_removed(place):
            self._remade.add(place)

    def make_room(self, place: Path, aside: Aside) -> None:
        """Takes aside what it believes to have removed, where it makes something else, if that can be."""
        if self.is_removed(place) and os.path.lexists(place):
            with contextlib.suppress(OSError):
                if aside.is_old(place):
                    aside.take(place)
            self.makes(place)

    def is_removed(self, place: Path) -> bool:
        """Whether it believes that nothing is there: it has removed that, or what it was in."""
        return place not in self._remade and not self._removed.isdisjoint((place, *place.parents))

    def has_removed(self, place: Path) -> bool:
        """Whether it believes to have removed just this."""
        return place in self._removed

    def has_moved_to(self, place: Path) -> bool:
        """Whether it believes that something is there now."""
        return place in self._moved_to

    def copies(self, path: Path, *, pretends: bool) -> None:
        """It copies to there, or believes to."""
        (self._copied_to.add if pretends else self._copied_to.discard)(path)

    def has_copied_to(self, path: Path) -> bool:
        """Whether it believes that its last copy is there."""
        return path in self._copied_to
