"""Lets a script remove, move and replace the user's files without losing them: they are put back after the run.

What would be removed or replaced is moved into a folder of dsopt's on the same file system, and what the script moves
is noted; each in an event before it happens. `launch/put_back.py` undoes it.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from dsopt.probe.own_folders import device_of, made, new_room, own_folders
from dsopt.probe.places import is_folder
from dsopt.probe.territory import Territory
from dsopt.protocol.birth import birth_ns, has_birth, was_there
from dsopt.protocol.events import EventWriter
from dsopt.protocol.file_events import being_saved, moved_file, saved_file
from dsopt.protocol.kept import copy_of, has_users, is_users, note_copy, note_users
from dsopt.protocol.run_dir import BEGAN_VARIABLE, RunDir

# as they are before anything wraps them
rename: Final = os.rename
unlink: Final = os.unlink
open_file: Final = os.open
_BLOCK: Final = 2**20  # bytes
_CLONE: Final = 0x40049409  # FICLONE of linux/fs.h: both share the blocks until one is written to


class Aside:
    """What a script does to the user's files, in one process.

    Args:
        writer: of this rank's events.
        run_dir: of the run.
        folder: the working folder.
        territory: what lies where.
    """

    def __init__(self, writer: EventWriter, run_dir: RunDir, folder: Path, territory: Territory) -> None:
        self._writer = writer
        self._aside = run_dir.aside
        self._working = folder
        self._territory = territory
        self.is_record = territory.is_record
        self._began_ns = began_ns(run_dir)  # what was there before is the user's
        self._new: set[Path] = set()  # what is in the place of the user's, and goes with the run
        self._noted: set[Path] = set()  # where the user's have gone by moves of the script
        self._emptied: set[Path] = set()  # folders that the user's were taken from
        self._above_noted: set[Path] = set()  # the folders above these
        self._linked: dict[Path, tuple[int, int]] = {}  # further names that the script gave to files, and of which

    def take(self, path: Path) -> Path:
        """Moves what a script removes out of its way, and says where it is now.

        Raises:
            OSError: it cannot be moved, or this process works in it: what it wrote there then would not be seen.
        """
        with contextlib.suppress(FileNotFoundError):  # the working folder was removed
            if Path.cwd().is_relative_to(path):
                raise OSError(errno.EBUSY, "it has the working folder", str(path))
        kept = self._away(path, rename)
        self._emptied.add(path.parent)
        return kept

    def keep(self, path: Path) -> Path:
        """Gives a file that a script replaces a second name, and says which: the first one is never without a file.

        Raises:
            OSError: it cannot be kept.
        """
        with contextlib.suppress(OSError):  # a file system without hard links
            return self._away(path, _link)
        return self._away(path, rename)

    def give_back(self, kept: Path, path: Path) -> None:
        """Undoes that at once: the script did not replace it after all."""
        if not os.path.lexists(path):
            rename(kept, path)
        elif path.lstat().st_ino == kept.lstat().st_ino:
            unlink(kept)

    def room_for(self, path: Path) -> Path | None:
        """A new folder where a file may be made that comes to a path by a rename; it goes with the run.

        None: there is none on that file system, or what happens at the path is nobody's loss.
        """
        if self.is_exempt(path):
            return None
        room = new_room(path, self._aside, self._working)
        if room is not None:
            self._writer.emit(saved_file(self._writer.rank, room))
        return room

    def swap_for(self, path: Path, act: Callable[[], object], *, is_empty: bool) -> object:
        """Opens a new file in the place of the user's, which it puts there at once: readers find either.

        Where that cannot be, as in a folder that is closed to us, the user's stays, and its content is kept.

        Args:
            path: of a file, links followed.
            act: opens it.
            is_empty: the new one is empty; else it begins with what is in the user's.

        Raises:
            OSError: neither can be done, as on a full disk. Nobody may write to the file then.
        """
        kept = self._swap(path, is_empty=is_empty)
        if kept is None:
            return act()
        self._new.add(path)
        try:
            return act()
        except BaseException:  # such as of a wrong mode
            self._new.discard(path)
            with contextlib.suppress(OSError):
                rename(kept, path)
            raise

    def _swap(self, path: Path, *, is_empty: bool) -> Path | None:
        """Where the user's is now; None: it stays."""
        try:
            kept = self.keep(path)
            try:
                self._put_new(path, kept, is_empty=is_empty)
            except OSError:
                self.give_back(kept, path)
                raise
        except OSError:
            self._copy(path)
            return None
        return kept

    def _tell_of_new(self, path: Path, new: Path | None = None) -> None:
        """Tells of a new file, which goes with the run: it is at a path, or is about to be moved there."""
        with contextlib.suppress(FileNotFoundError):  # another rank has moved it on
            self._writer.emit(being_saved(self._writer.rank, path, new))

    def has_moved(self, old: Path, new: Path) -> None:
        """A script has moved something: what was in the place of the user's goes with the run from there, too."""
        self._linked.pop(new, None)
        may_have_more = is_folder(new)
        for path in _at(old, self._linked, may_have_more=may_have_more):
            with contextlib.suppress(KeyError):  # another thread
                self._linked[new / path.relative_to(old)] = self._linked.pop(path)
        for path in _at(old, self._new, may_have_more=may_have_more):
            self._new.discard(path)
            to = new / path.relative_to(old)
            if not self.is_old(to):  # another rank may have put the user's there since
                self._new.add(to)
                self._tell_of_new(to)

    def has_removed(self, place: Path, *, was_folder: bool) -> None:
        """A script has removed something: what comes there next may be the user's."""
        for path in _at(place, self._linked, may_have_more=was_folder):
            self._linked.pop(path, None)
        self._new.difference_update(_at(place, self._new, may_have_more=was_folder))

    def moves(self, old: Path, new: Path) -> None:
        """Notes what of the user's a script is about to move."""
        self._noted.add(new)
        self._above_noted.update(new.parents)
        if self._territory.is_exempt(new, is_noted=False):
            note_users(old)  # another rank may remove it there
        self._tell(old, new)

    def is_old_folder(self, path: Path) -> bool:
        """Whether a folder was there before the run, whatever is in it. Without births, this process has seen that."""
        if not is_folder(path) or self.is_exempt(path):
            return False
        born_ns = birth_ns(path) if has_birth(path) else None
        return path in self._emptied or path in self._noted if born_ns is None else born_ns <= self._began_ns

    def is_new_folder(self, path: Path) -> bool:
        """Whether a folder was made since the first of the runs beside each other began, as far as births tell."""
        return is_folder(path) and has_birth(path) and (birth_ns(path) or 0) > self._began_ns

    def is_exempt(self, path: Path) -> bool:
        """Whether what happens there is nobody's loss: nothing of the user's was moved there, below it or above it."""
        is_noted = path in self._noted or path in self._above_noted or not self._noted.isdisjoint(path.parents)
        return self._territory.is_exempt(path, is_noted=is_noted) and not (has_users() and is_users(path))

    def has_linked(self, new: Path) -> None:
        """A script has given a file a further name, which is no loss by itself."""
        with contextlib.suppress(OSError):  # another rank has removed it
            found = new.lstat()
            self._linked[new] = (found.st_dev, found.st_ino)

    def is_link(self, path: Path) -> bool:
        """Whether this is only a further name that the script has given to a file, which has others still."""
        with contextlib.suppress(OSError):
            found = path.lstat()
            return self._linked.get(path) == (found.st_dev, found.st_ino) and found.st_nlink > 1
        return False

    def is_old(self, path: Path) -> bool:
        """Whether something was there before the run: a file, a link, or a folder with one."""
        with contextlib.suppress(OSError):
            return was_there(path, self._began_ns) or (not has_birth(path) and has_users() and self._has_noted(path))
        return False

    def _has_noted(self, path: Path) -> bool:
        """Whether a file was noted as the user's, or one in a folder."""
        inner = path.rglob("*") if path.is_dir() and not path.is_symlink() else ()
        return is_users(path) or any(is_users(file) for file in inner)

    def _away(self, path: Path, move: Callable[[Path, Path], None]) -> Path:
        device = path.lstat().st_dev
        why = OSError(errno.EXDEV, "no folder of its file system can be written", str(path))
        for folder in own_folders(path, self._aside, self._working):
            if device_of(folder.parent) == device:  # a rename keeps a file as it is, a copy would not
                try:  # it may be another mount of the same disk, or be closed to us
                    with made(folder):
                        kept = folder / uuid.uuid4().hex
                        self._tell(path, kept)
                        move(path, kept)
                        return kept
                except OSError as error:
                    why = error
        raise why

    def _put_new(self, path: Path, kept: Path, *, is_empty: bool) -> None:
        new = kept.with_name(uuid.uuid4().hex)  # on the same file system, where nobody meets it half-written
        descriptor = open_file(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            try:
                if not is_empty:
                    _write_content(kept, descriptor)
                os.fchmod(descriptor, stat.S_IMODE(kept.stat().st_mode))
            finally:
                os.close(descriptor)
            self._tell_of_new(path, new)
            rename(new, path)
        except OSError:
            unlink(new)
            raise

    def _copy(self, path: Path) -> None:
        known = copy_of(path)  # a run beside this one may have written to the file since
        if known is not None and known.parent == self._aside:
            return
        self._aside.mkdir(mode=0o700, exist_ok=True)
        copy = self._aside / uuid.uuid4().hex
        descriptor = open_file(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            try:
                _write_content(known or path, descriptor)
            finally:
                os.close(descriptor)
            shutil.copystat(known or path, copy)
            self._tell(path, copy, is_copy=True)
            note_copy(path, copy)
            if not has_birth(path):
                note_users(path)
        except OSError:
            unlink(copy)
            with contextlib.suppress(OSError):
                self._aside.rmdir()  # unless it has others
            raise

    def _tell(self, path: Path, to: Path, *, is_copy: bool = False) -> None:
        found, now = path.lstat(), time.time_ns()
        self._writer.emit(moved_file(self._writer.rank, path, to, found, now, is_copy=is_copy))


def _at(place: Path, known: Collection[Path], *, may_have_more: bool) -> list[Path]:
    """Which of the known paths are at a place, or in it: thousands may be known, and each file that is moved asks."""
    if may_have_more:
        return [path for path in tuple(known) if path.is_relative_to(place)]
    return [place] if place in known else []


def began_ns(run_dir: RunDir) -> int:
    """When the first of the runs beside each other began, by the clock of the file system."""
    own = run_dir.mark.stat().st_mtime_ns if run_dir.mark.exists() else time.time_ns()
    return min(own, int(os.environ.get(BEGAN_VARIABLE, own)))


def _link(path: Path, to: Path) -> None:
    os.link(path, to, follow_symlinks=False)


def _write_content(source: Path, target: int) -> None:
    """Copies without `open`, which is not ours here."""
    descriptor = open_file(source, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # on few file systems
            fcntl.ioctl(target, _CLONE, descriptor)
            return
        while block := os.read(descriptor, _BLOCK):
            while block:
                block = block[os.write(target, block) :]
    finally:
        os.close(descriptor)
