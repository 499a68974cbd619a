"""Lets a script remove what is its own, and moves what is the user's out of its way."""

import contextlib
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dsopt.probe.aside import unlink
from dsopt.probe.known import Known
from dsopt.probe.parts import holds_users, take_parts
from dsopt.probe.places import is_aside, is_empty, is_folder, is_path, place_of
from dsopt.probe.writing import PATIENCE
from dsopt.protocol.alone import alone

REMOVERS: Final = ((os, "remove"), (os, "unlink"), (shutil, "rmtree"))
_MOST_REMOVED: Final = 1000  # files that were never there: a script may remove what it numbers until one is missing
_Call = Callable[..., Any]


class Removals:
    """What a script removes, in one process, and the folders that it makes anew where it has.

    Args:
        known: of files.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._removed = 0  # how much of what was skipped it believes to have removed

    def around_remove(self, original: _Call, path: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """Functions that remove a file, or a folder with all that is in it: a script may keep its last checkpoints."""
        act = functools.partial(original, path, *args, **kwargs)
        if kwargs.get("dir_fd") is not None or not is_path(path) or not path:
            return act()
        with alone(PATIENCE):  # else another rank puts something else there meanwhile
            place, removes_folders = place_of(path), getattr(original, "__name__", "") == "rmtree"
            if removes_folders and is_folder(place) and os.path.islink(Path(os.fsdecode(path))):  # noqa: PTH114
                return self._take_parts(place, act)  # the link's own name stays, whatever becomes of it
            return self._remove(place, act, removes_folders=removes_folders)

    def around_rmdir(self, original: _Call, path: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """`os.rmdir`: what was in a folder of the user's comes back into the same one, whatever its name."""
        act = functools.partial(original, path, *args, **kwargs)
        if kwargs.get("dir_fd") is not None or not is_path(path) or not path:
            return act()
        is_real = not os.fsdecode(path).endswith("/.") and not os.path.islink(Path(os.fsdecode(path)))  # noqa: PTH114
        with alone(PATIENCE), contextlib.suppress(FileNotFoundError):  # the working folder was removed
            place = place_of(path)
            if self._known.territory.holds_the_run(place):
                self._known.stayed.add(place)
                return None
            if is_real and self._known.aside.is_old_folder(place) and is_empty(place):
                return self._take(place, act)
        return act()

    def around_mkdir(self, original: _Call, path: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """A script may make a folder anew that it believes to have moved or removed."""
        act = functools.partial(original, path, *args, **kwargs)
        if kwargs.get("dir_fd") is not None or not is_path(path):
            return act()
        place, stayed = place_of(path), self._known.stayed
        if is_folder(place) and not stayed.isdisjoint((place, *place.parents)):
            stayed.discard(place)
            stayed.update(entry for entry in place.iterdir() if is_folder(entry))
            return None
        self._known.telling.is_making(place, is_folder=True)
        try:
            result = act()
        except FileExistsError:
            self._known.telling.finds(place)
            raise
        self._known.makes(place)
        return result

    def _remove(self, place: Path, act: Callable[[], object], *, removes_folders: bool) -> object:
        known = self._known
        if is_aside(place) or known.territory.is_record(place):
            return None
        if known.was_skipped(place):
            self._removed += 1
            return act() if self._removed > _MOST_REMOVED else None
        if (removes_folders or os.path.islink(place)) and known.territory.holds_the_run(place):  # noqa: PTH114
            known.say("removing a folder with this run's own", place)
            known.stayed.add(place)
            return None
        is_lost = is_folder(place) == removes_folders and known.users.would_be_lost(place, known.aside.is_old)
        result = self._take(place, act) if is_lost else act()
        if not os.path.lexists(place):
            inner = [path for path in tuple(known.own) if path.is_relative_to(place)] if removes_folders else ()
            known.own.difference_update([place, *inner])
            known.aside.has_removed(place, was_folder=removes_folders)
        return result

    def _take(self, place: Path, act: Callable[[], object]) -> object:
        """Removes something of the user's, as far as the script can see; where that cannot be, it stays."""
        own, aside = tuple(self._known.own), self._known.aside
        for path in [path for path in own if path.is_relative_to(place) and not aside.is_old(path)]:
            with contextlib.suppress(OSError):  # its own does not come back with the user's
                unlink(path)
        try:
            aside.take(place)
        except OSError:  # such as a folder that is a mount, or whose own folder is closed to us; or it is gone
            return self._take_parts(place, act)
        return None

    def _take_parts(self, place: Path, act: Callable[[], object]) -> object:
        """The same of what is in a folder that stays, or that the script then removes itself."""
        known = self._known
        is_lost = functools.partial(known.users.would_be_lost, counts=known.aside.is_old)
        take_parts(place, known.aside.take, is_lost)
        if not os.path.lexists(place) or not holds_users(place, is_lost):
            return act()
        known.say("removing existing files", place)
        return None
