"""Keeps what is in the user's files where a script writes to them: it comes back after the run."""

import contextlib
import errno
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dsopt.probe.known import Known
from dsopt.probe.opening import written_path
from dsopt.probe.places import has_content, is_path, may_be_plain, resolved
from dsopt.protocol.alone import alone
from dsopt.protocol.birth import has_birth
from dsopt.protocol.checkpoint_names import FILE
from dsopt.protocol.kept import note_users

PATIENCE: Final = 2.0  # seconds for whoever is at the user's files now
_LARGEST_COPY: Final = 2**28  # bytes of a file that a script does not write anew; one that is larger is data, no log
_CHANGES: Final = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_Call = Callable[..., Any]


class WrittenFiles:
    """What a script opens to write, in one process.

    Args:
        known: of files.
    """

    def __init__(self, known: Known) -> None:
        self._known = known

    def around_open(self, original: _Call, file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """Python's `open`. What it would cut to nothing, or write to, comes back later if it is the user's.

        Raises:
            OSError: the user's would be lost, as on a full disk.
        """
        path, act = written_path(file, mode, args, kwargs), functools.partial(original, file, mode, *args, **kwargs)
        return self._write_at(path, mode, act)

    def around_os_open(self, original: _Call, path: Any, flags: int, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """`os.open`, in the same way; a path that is relative to some descriptor is not seen."""
        act = functools.partial(original, path, flags, *args, **kwargs)
        if kwargs.get("dir_fd") is not None or not is_path(path) or not flags & _CHANGES:
            return act()
        mode = "x" if flags & os.O_EXCL and flags & os.O_CREAT else "w" if flags & os.O_TRUNC else "a"
        return self._write_at(resolved(path), mode, act)

    def around_truncate(self, original: _Call, path: Any, length: int) -> object:  # noqa: ANN401
        """`os.truncate`, in the same way."""
        mode = "r+" if length else "w"
        return self._write_at(resolved(path) if is_path(path) else None, mode, lambda: original(path, length))

    def around_utime(self, original: _Call, path: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """`os.utime`, which `Path.touch` calls, too: where a date alone tells an age, the user's keeps its own."""
        act = functools.partial(original, path, *args, **kwargs)
        if not is_path(path) or not {"dir_fd", "follow_symlinks"}.isdisjoint(kwargs):
            return act()
        place = resolved(path)
        if os.path.isfile(place) and not has_birth(place):  # noqa: PTH113 - takes any text
            return self._write_at(place, "r+", act)
        result = act()
        if place in self._known.own:
            self._known.writes(place)
        return result

    def makes_way(self, path: Path) -> bool:
        """Puts an empty file in the place of the user's that a save replaces; False: the user's cannot be kept so."""
        if not os.path.isfile(path):  # noqa: PTH113 - takes any text
            return True
        with contextlib.suppress(OSError), alone(PATIENCE):
            if not self._known.aside.is_old(path) or not os.access(path, os.W_OK, effective_ids=True):
                return True
            if shutil.disk_usage(path.parent).free > path.stat().st_size:
                self._known.aside.swap_for(path, lambda: None, is_empty=True)
                return True
        return False

    def _write_at(self, path: Path | None, mode: str, act: Callable[[], object]) -> object:
        aside = self._known.aside
        if path is not None and aside.is_record(path) and not {"a", "x"} & set(mode):
            raise PermissionError(errno.EACCES, "dsopt needs it to put your files back", str(path))
        if path is None or aside.is_exempt(path) or not may_be_plain(path):
            return act()
        # an empty one, such as a lock, has nothing to lose
        if not (has_content(path) or FILE.fullmatch(path.name)) or "x" in mode:
            return self._write_own(path, act)
        with alone(PATIENCE):
            is_users = aside.is_old(path) and os.access(path, os.W_OK, effective_ids=True)
            return self._write_users(path, mode, act) if is_users else self._write_own(path, act)

    def _write_own(self, path: Path, act: Callable[[], object]) -> object:
        """Writes to a file that goes with the run, if it is not the user's."""
        known, is_there = self._known, os.path.lexists(path)
        is_own = not is_there or known.has_written(path) or self._is_new(path)
        if not is_there and FILE.fullmatch(path.name):
            known.made.add(path)
        if is_own and path not in known.own:
            known.telling.is_making(path)
        result = act()
        if is_own:
            known.writes(path)
        return result

    def _is_new(self, path: Path) -> bool:
        """Whether births tell that a file is not the user's; one that another rank has just removed is none."""
        with contextlib.suppress(FileNotFoundError):
            return has_birth(path) and not self._known.aside.is_old(path)
        return True

    def _write_users(self, path: Path, mode: str, act: Callable[[], object]) -> object:
        """Writes to a file of the user's, which is kept."""
        is_cut = "w" in mode
        if not is_cut and path.stat().st_size > _LARGEST_COPY:
            self._known.say("keeping what was in a large file that the script writes to", path)
            if not has_birth(path):
                note_users(path)
            return act()
        return self._known.aside.swap_for(path, act, is_empty=is_cut)
