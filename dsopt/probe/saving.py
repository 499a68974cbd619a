"""Keeps what a script saves, moves and removes off the user's own files, and tells of what it saves anew.

What functions that save have written is known by itself, whatever its name; what anything else has written, by names.
"""

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from dsopt.probe.aside import Aside
from dsopt.protocol.checkpoint_names import FILE
from dsopt.protocol.events import EventWriter, being_saved, saved_file
from dsopt.protocol.run_dir import RunDir

_CLOCK_NS: Final = 2_000_000_000  # file systems' clocks may lag by so much
_DEPTH: Final = 3  # of a folder of checkpoints
_COMPILED: Final = "torchinductor_"  # the folder in /tmp where torch.compile keeps what it has made
_CACHES: Final = (
    "XDG_CACHE_HOME",
    "HF_HOME",
    "TORCH_HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
)
REMOVERS: Final = ((os, "remove"), (os, "unlink"), (shutil, "rmtree"))
_Call = Callable[..., Any]


class SavedFiles:
    """What a script does to files, in one process.

    Args:
        say: told what is skipped, and where to.
    """

    def __init__(self, say: Callable[[str, object], None]) -> None:
        self._say = say
        self._own: set[Path] = set()  # what the script itself has saved in this run
        self._left: set[Path] = set()  # where it believes to have moved the user's to
        self._kept: set[Path] = set()  # what it believes to have removed

    def activate(self, writer: EventWriter, run_dir: RunDir) -> None:
        """From now on, this process is a rank of a run."""
        self._writer, self._run_folder = writer, Path(os.path.realpath(run_dir.path))
        self._folder, self._began_ns = Path(os.path.realpath(Path.cwd())), time.time_ns() - _CLOCK_NS
        self._aside = Aside(writer, run_dir, self._folder, self._began_ns)
        self._temporary = Path(os.path.realpath(tempfile.gettempdir()))
        caches = [os.environ.get(name) for name in _CACHES]
        self._caches = [Path(os.path.realpath(folder)) for folder in (*caches, Path.home() / ".cache") if folder]

    def around_save(self, original: _Call, what: str, target: Any, *, is_folder: bool) -> object:  # noqa: ANN401
        """A function that writes to a path.

        Args:
            original: does it.
            what: its name.
            target: the path; anything else is none of the user's.
            is_folder: whether it writes files into a folder of this name.
        """
        if not is_path(target):
            return original()
        path = Path(os.path.realpath(target))
        if self._is_the_users(path):
            self._say(f"{what} over existing files", target)
            return None
        self._own.add(path)
        began = time.time_ns() - _CLOCK_NS
        if not is_folder:
            self._tell_of_beginning(path)
        result = original()
        self._tell_of(path, began)
        return result

    def around_move(self, original: _Call, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """A script may save beside its checkpoint, and put the new one in its place, or move the last one away."""
        given = [*args, *(kwargs[name] for name in ("src", "dst") if name in kwargs)]
        if len(given) != 2 or len(given) != len(args) + len(kwargs) or not all(map(is_path, given)):
            return original(*args, **kwargs)
        old, new = map(_place, given)
        if old == new:
            return original(*args, **kwargs)
        moved = [path for path in self._own if path == old or path.is_relative_to(old)]
        if not self._is_cached(new) and (
            self._is_checkpoint(old) or self._is_checkpoint(new) or (moved and self._is_the_users(new))
        ):
            self._say("moving or replacing existing files", new)
            if self._is_checkpoint(old):
                self._left.add(new)
                self._kept.add(old)
            for path in moved:
                with contextlib.suppress(OSError):
                    path.unlink()
            return None
        result = self._moved(old, new, lambda: original(*args, **kwargs))
        for path in moved:
            self._own.add(new / path.relative_to(old))
            self._tell_of(new / path.relative_to(old), since=0)
        return result

    def around_copy(self, original: _Call, src: Any, dst: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """`shutil.copyfile`, which `copy` and `copy2` call, too."""
        if not is_path(src) or not is_path(dst):
            return original(src, dst, *args, **kwargs)
        is_own, path = Path(os.path.realpath(src)) in self._own, Path(os.path.realpath(dst))
        if not self._is_cached(path) and (self._is_checkpoint(path) or (is_own and self._is_the_users(path))):
            self._say("copying over existing files", dst)
            return dst
        if is_own:
            self._own.add(path)
            self._tell_of_beginning(path)  # `copy2` changes its date after this
        return original(src, dst, *args, **kwargs)

    def around_remove(self, original: _Call, path: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """Functions that remove a file, or a folder with all that is in it: a script may keep its last checkpoints."""
        if kwargs.get("dir_fd") is None and is_path(path):
            place = _place(path)
            if self._is_checkpoint(place, before_ns=self._began_ns) and not self._is_cached(place):
                self._say("removing existing files", path)
                self._kept.add(place)
                return None
            if place in self._left and not os.path.lexists(place):
                return None
            removes_folders = getattr(original, "__name__", "") == "rmtree"
            if _is_folder(place) == removes_folders and not self._is_exempt(place) and self._aside.is_old(place):
                self._take_aside(place)
                return None
        return original(path, *args, **kwargs)

    def around_mkdir(self, original: _Call, path: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """A script may make a folder anew that it believes to have moved or removed."""
        if kwargs.get("dir_fd") is None and is_path(path) and _place(path) in self._kept and Path(path).is_dir():
            return None
        return original(path, *args, **kwargs)

    def around_symlink(self, original: _Call, src: Any, dst: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """A link may name the last checkpoint: the user's still does, and a new one goes with what it names."""
        if kwargs.get("dir_fd") is not None or not is_path(dst):
            return original(src, dst, *args, **kwargs)
        place = _place(dst)
        if place in self._kept and os.path.lexists(place):
            self._say("replacing existing links", dst)
            return None
        result = original(src, dst, *args, **kwargs)
        self._own.add(place)
        self._tell_of(place, since=0)
        return result

    def _take_aside(self, place: Path) -> None:
        """Removes something of the user's, as far as the script can see."""
        try:
            self._aside.take(place)
        except OSError:  # such as a full disk
            self._say("removing existing files", place)
            self._kept.add(place)

    def _moved(self, old: Path, new: Path, move: _Call) -> object:
        """Lets the script move something; what is replaced, and what is moved, comes back if it is the user's."""
        kept, may_replace = None, os.path.lexists(old) and not _is_folder(old) and not _is_folder(new)
        with contextlib.suppress(OSError):  # then it is written over, as by `open`
            if may_replace and not self._is_exempt(new) and self._aside.is_old(new):
                kept = self._aside.take(new)
        with contextlib.suppress(OSError):
            if not self._is_exempt(old):
                self._aside.moves(old, new)
        try:
            return move()
        except BaseException:
            if kept is not None:
                self._aside.give_back(kept, new)
            raise

    def _is_the_users(self, path: Path) -> bool:
        """Whether there is a file or folder with content that this run has not saved."""
        if path in self._own or path.is_relative_to(self._run_folder):
            return False
        if path.is_dir():
            return any(file not in self._own for file in path.iterdir())
        return path.is_file() and path.stat().st_size > 0

    def _is_checkpoint(self, path: Path, before_ns: float = float("inf")) -> bool:
        """Whether something of the user's is there that looks like a checkpoint, a folder with one, or a link to it."""
        if not self._is_the_users(path):
            return False
        with contextlib.suppress(OSError):
            return any(
                FILE.fullmatch(file.name) and file not in self._own and file.stat().st_mtime_ns < before_ns
                for file in _files_at(path.resolve(), _DEPTH)
            )
        return False

    def _is_cached(self, path: Path) -> bool:
        """Whether it lies in a cache of some library."""
        is_compiled = any(part.startswith(_COMPILED) for part in path.parts)
        return is_compiled or any(path.is_relative_to(cache) for cache in self._caches)

    def _is_exempt(self, path: Path) -> bool:
        """Whether what happens there is nobody's loss: in the run's own, caches, elsewhere temporary or hidden."""
        if path.is_relative_to(self._run_folder) or self._is_cached(path):
            return True
        if path.is_relative_to(self._folder) or self._aside.has_noted(path):
            return False
        return any(part.startswith(".") for part in path.parts) or path.is_relative_to(self._temporary)

    def _counts(self, path: Path) -> bool:
        """Whether what is saved there may be trained weights that somebody goes on from: it is in no cache, by name."""
        is_below = path.is_relative_to(self._folder)
        is_hidden = is_below and any(part.startswith(".") for part in path.relative_to(self._folder).parts)
        is_own = path.is_relative_to(self._run_folder)
        return self._writer.has_stepped and not is_hidden and not is_own and not self._is_cached(path)

    def _tell_of_beginning(self, path: Path) -> None:
        """Tells the worker of a file that is about to be written: it may kill this process meanwhile."""
        if self._counts(path):
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))  # as `open` does; now it has a number
                self._writer.emit(being_saved(self._writer.rank, path, path.lstat()))

    def _tell_of(self, path: Path, since: int) -> None:
        """Tells the worker of what the script has saved there since."""
        with contextlib.suppress(OSError):  # another rank has removed it
            for file in _files_at(path, _DEPTH):
                found = file.lstat()
                is_plain = stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)
                if self._counts(file) and is_plain and found.st_mtime_ns >= since:
                    self._writer.emit(saved_file(self._writer.rank, file, found))


def is_path(value: object) -> bool:
    """Whether something is a path as text."""
    return isinstance(value, str) or (isinstance(value, os.PathLike) and isinstance(os.fspath(value), str))


def _place(path: Any) -> Path:  # noqa: ANN401 - of a path
    """Where a name stands, whatever it names: what is moved or removed is not followed if it is a link."""
    absolute: Path = Path.cwd() / path
    if absolute.name in ("", ".."):
        return Path(os.path.realpath(absolute))
    return Path(os.path.realpath(absolute.parent)) / absolute.name


def _is_folder(path: Path) -> bool:
    """Whether it is a folder, and no link to one."""
    return path.is_dir() and not path.is_symlink()


def _files_at(path: Path, depth: int) -> Iterator[Path]:
    """A file itself, or those in a folder, so many levels deep; a link is no folder."""
    if not _is_folder(path):
        yield path
    elif depth > 0:
        for entry in path.iterdir():
            yield from _files_at(entry, depth - 1)
