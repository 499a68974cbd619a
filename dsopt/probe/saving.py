"""Keeps what a script saves, moves and removes off the user's own files, and tells of what it saves anew.

What functions that save have written is known by itself, whatever its name; what anything else has written, by names.
"""

import contextlib
import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from dsopt.probe.aside import Aside, unlink
from dsopt.probe.parts import holds_users, take_parts
from dsopt.probe.places import (
    are_one,
    is_aside,
    is_empty,
    is_folder,
    is_path,
    numbers_in,
    path_of_open,
    place_of,
    resolved,
)
from dsopt.probe.telling import DEPTH, Telling
from dsopt.probe.territory import Territory
from dsopt.probe.users import Users
from dsopt.probe.writing import PATIENCE, WrittenFiles
from dsopt.protocol.alone import alone
from dsopt.protocol.birth import CLOCK_NS
from dsopt.protocol.events import EventWriter
from dsopt.protocol.run_dir import RunDir

REMOVERS: Final = ((os, "remove"), (os, "unlink"), (shutil, "rmtree"))
_MOST_REMOVED: Final = 1000  # files that were never there: a script may remove what it numbers until one is missing
_Call = Callable[..., Any]


class SavedFiles:
    """What a script does to files, in one process.

    Args:
        say: told what is skipped, and where to.

    Attributes:
        written: what it writes to.
    """

    def __init__(self, say: Callable[[str, object], None]) -> None:
        self._say = say
        self._own: set[Path] = set()  # what the script itself has saved in this run
        self.written = WrittenFiles(say)
        self._skipped: set[Path] = set()  # what it believes to have saved there, and has not
        self._removed = 0  # how much of that it believes to have removed
        self._stayed: set[Path] = set()  # folders with the run's own, which it believes to have moved or removed
        self._made: set[Path] = set()  # what looks like a checkpoint, and it has made by itself

    def activate(self, writer: EventWriter, run_dir: RunDir) -> None:
        """From now on, this process is a rank of a run."""
        self._run_folder = Path(os.path.realpath(run_dir.path))
        working = Path(os.path.realpath(Path.cwd()))
        self._territory = Territory(working, run_dir.path)
        self._telling = Telling(writer, self._territory)
        self._aside = Aside(writer, run_dir, working, self._territory)
        self._users = Users(self._aside, self._territory, self._run_folder, self._own, self._made)
        self.written.activate(self._aside, self._made)

    def skips(self, path: Path, folder: Path | None = None) -> None:
        """Takes note of where a script believes to have saved, maybe in a folder: it may remove or move that later."""
        self._skipped.add(path)
        if folder is not None:
            self._own.update(self._telling.makes_folder(folder, self._aside.is_new_folder))

    def around_save(self, original: _Call, what: str, target: Any, *, is_folder: bool) -> object:  # noqa: ANN401
        """A function that writes to a path, or to a file that is open.

        Args:
            original: does it.
            what: its name.
            target: the path or the file.
            is_folder: whether it writes files into a folder of this name.
        """
        if not is_path(target):
            if (path := path_of_open(target)) is not None and not self._aside.is_old(path):
                self._own.add(path)
                self._telling.begins(path)  # it changes until the script closes it
            return original()
        path = resolved(target)
        if self._users.has_others(path) or not (is_folder or self.written.makes_way(path)):
            self._say(f"{what} over existing files", target)
            self.skips(path)
            return None
        if is_folder:
            return self._save_into(path, original)
        self._own.add(path)
        began = time.time_ns() - CLOCK_NS
        self._telling.begins(path)
        result = original()
        self._telling.has_saved(path, began)
        return result

    def _save_into(self, folder: Path, original: _Call) -> object:
        """Lets a function save into a folder, which opens, saves and removes each file as a script does."""
        before, is_users = numbers_in(folder, DEPTH), self._users.is_users(folder)
        if not os.path.lexists(folder):
            self._own.add(folder)
        result = original()
        for file, number in numbers_in(folder, DEPTH).items():
            if before.get(file) != number or file in self._own:
                self._owns(file, is_beside_users=is_users)
        return result

    def around_move(self, original: _Call, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """A script may save beside its checkpoint, and put the new one in its place, or move the last one away."""
        given = [*args, *(kwargs[name] for name in ("src", "dst") if name in kwargs)]
        are_two = len(given) == 2 == len(args) + len(kwargs)
        if not are_two or not all(is_path(path) and path for path in given):
            return original(*args, **kwargs)
        old, new = map(place_of, given)
        act = functools.partial(original, *args, **kwargs)
        if old == new or are_one(old, new):  # which `rename` leaves as they are
            return act()
        with alone(PATIENCE):  # else another rank puts something else there meanwhile
            return self._move(old, new, act)

    def _move(self, old: Path, new: Path, act: Callable[[], object]) -> object:
        if self._was_skipped(old):
            self.skips(new)
            return None
        if is_aside(old) or self._territory.is_record(old) or self._territory.is_record(new):
            return None
        if self._territory.holds_the_run(old) or self._territory.holds_the_run(new):
            if not os.path.lexists(old) or not is_folder(new.parent):
                return act()
            self._say("moving or replacing a folder with this run's own", old)
            self._stayed.add(old)
            self.skips(new)
            return None
        inner = [path for path in tuple(self._own) if path.is_relative_to(old)] if is_folder(old) else [old]
        moved = self._own.intersection(inner)
        is_own = not self._users.is_theirs(old)
        result = self._moved(old, new, act, is_saved=bool(moved))
        if is_own:
            self._made.add(new)
        self._aside.has_moved(old, new)
        self._own -= {*moved, new}
        for path in (new / path.relative_to(old) for path in moved):
            if not self._aside.is_old(path):  # the user's may have come to a path of the run's own
                self._owns(path)
        return result

    def around_copy(self, original: _Call, src: Any, dst: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """`shutil.copyfile`, which `copy` and `copy2` call, too. It opens the file as a script does."""
        act = functools.partial(original, src, dst, *args, **kwargs)
        if not is_path(src) or not is_path(dst):
            return act()
        path, source = resolved(dst), resolved(src)
        is_saved = source in self._own or source in self._skipped
        with alone(PATIENCE):
            # one that is older is kept where it is opened, unless it is in a place that is nobody's loss otherwise
            is_kept = self._aside.is_old(path) and not self._aside.is_exempt(path)
            if not is_kept and self._users.would_be_replaced(path, is_saved=is_saved):
                with _unless_gone(path):
                    self._aside.take(path)
        if is_saved:
            self._own.add(path)
            if not self._users.is_users(path):
                self._telling.begins(path)  # `copy2` changes its date after this
        return act()

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
            if self._territory.holds_the_run(place):
                self._stayed.add(place)
                return None
            if is_real and self._aside.is_old_folder(place) and is_empty(place):
                return self._take(place, act)
        return act()

    def _remove(self, place: Path, act: Callable[[], object], *, removes_folders: bool) -> object:
        if is_aside(place) or self._territory.is_record(place):
            return None
        if self._was_skipped(place):
            self._removed += 1
            return act() if self._removed > _MOST_REMOVED else None
        if (removes_folders or os.path.islink(place)) and self._territory.holds_the_run(place):  # noqa: PTH114
            self._say("removing a folder with this run's own", place)
            self._stayed.add(place)
            return None
        is_lost = is_folder(place) == removes_folders and self._users.would_be_lost(place, self._aside.is_old)
        result = self._take(place, act) if is_lost else act()
        if not os.path.lexists(place):
            inner = [path for path in tuple(self._own) if path.is_relative_to(place)] if removes_folders else ()
            self._own.difference_update([place, *inner])
            self._aside.has_removed(place, was_folder=removes_folders)
        return result

    def _take(self, place: Path, act: Callable[[], object]) -> object:
        """Removes something of the user's, as far as the script can see; where that cannot be, it stays."""
        for path in [path for path in tuple(self._own) if path.is_relative_to(place) and not self._aside.is_old(path)]:
            with contextlib.suppress(OSError):  # its own does not come back with the user's
                unlink(path)
        try:
            self._aside.take(place)
        except OSError:  # such as a folder that is a mount, or whose own folder is closed to us; or it is gone
            return self._take_parts(place, act)
        return None

    def _take_parts(self, place: Path, act: Callable[[], object]) -> object:
        """The same of what is in a folder that stays, or that the script then removes itself."""
        is_lost = functools.partial(self._users.would_be_lost, counts=self._aside.is_old)
        take_parts(place, self._aside.take, is_lost)
        if not os.path.lexists(place) or not holds_users(place, is_lost):
            return act()
        self._say("removing existing files", place)
        return None

    def around_mkdir(self, original: _Call, path: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """A script may make a folder anew that it believes to have moved or removed."""
        if kwargs.get("dir_fd") is not None or not is_path(path) or not self._stayed:
            return original(path, *args, **kwargs)
        place = place_of(path)
        if is_folder(place) and not self._stayed.isdisjoint((place, *place.parents)):
            self._stayed.discard(place)
            self._stayed.update(entry for entry in place.iterdir() if is_folder(entry))
            return None
        return original(path, *args, **kwargs)

    def around_symlink(self, original: _Call, src: Any, dst: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """A link may name the last checkpoint: a new one goes with what it names."""
        result = original(src, dst, *args, **kwargs)
        if kwargs.get("dir_fd") is None and is_path(dst):
            self._owns(place_of(dst))
        return result

    def around_link(self, original: _Call, src: Any, dst: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """`os.link`: what it names once more goes with what it names, if that is of this run."""
        result = original(src, dst, *args, **kwargs)
        if is_path(src) and is_path(dst) and kwargs.keys().isdisjoint(("src_dir_fd", "dst_dir_fd")):
            place = place_of(dst)
            self._aside.has_linked(place)
            if resolved(src) in self._own:
                self._owns(place)
        return result

    def _was_skipped(self, place: Path) -> bool:
        """Whether nothing is there that the script believes to have saved."""
        return not os.path.lexists(place) and not self._skipped.isdisjoint((place, *place.parents))

    def _owns(self, path: Path, *, is_beside_users: bool = False) -> None:
        """What is there is of this run, and goes with it."""
        self._own.add(path)
        if is_folder(path):
            self._telling.has_made(path)
        self._telling.has_saved(path, since=0, is_beside_users=is_beside_users)

    def _moved(self, old: Path, new: Path, move: _Call, *, is_saved: bool) -> object:
        """Lets the script move something; what is replaced, and what is moved, comes back if it is the user's."""
        kept, may_replace = None, os.path.lexists(old) and not is_folder(old) and not is_folder(new)
        if may_replace and self._users.would_be_replaced(new, is_saved=is_saved):
            with _unless_gone(new):
                kept = self._aside.keep(new)
        try:
            if self._users.would_be_lost(old, self._users.is_theirs):
                self._aside.moves(old, new)
            return move()
        except BaseException:
            if kept is not None:
                self._aside.give_back(kept, new)
            raise


@contextlib.contextmanager
def _unless_gone(path: Path) -> Iterator[None]:
    """It is no error that something cannot be taken aside which another rank has moved."""
    try:
        yield
    except OSError:
        if os.path.lexists(path):
            raise
