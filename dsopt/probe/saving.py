"""Lets a script save, off the user's own files, and tells of what it saves: that goes with the run.

What functions that save have written is known by itself, whatever its name; what anything else has written, by names.
"""

import contextlib
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dsopt.probe.aside import rename
from dsopt.probe.known import Known
from dsopt.probe.moving import Moves
from dsopt.probe.places import is_path, numbers_in, path_of_open, place_of, resolved
from dsopt.probe.telling import DEPTH
from dsopt.probe.writing import PATIENCE, WrittenFiles
from dsopt.protocol.alone import alone
from dsopt.protocol.birth import CLOCK_NS

_VOCABULARIES: Final = {
    "BPE": ("vocab.json", "merges.txt"),
    "Unigram": ("unigram.json",),
    "WordLevel": ("vocab.json",),
    "WordPiece": ("vocab.txt",),
}
_Call = Callable[..., Any]


class Saves:
    """What a script saves by functions that save, in one process.

    Args:
        known: of files.
        moves: puts what is saved into its place.
        written: makes way for it.
    """

    def __init__(self, known: Known, moves: Moves, written: WrittenFiles) -> None:
        self._known = known
        self._moves = moves
        self._written = written

    def around_save(self, original: _Call, what: str, target: Any) -> object:  # noqa: ANN401
        """A function that writes to a path, or to a file that is open.

        Args:
            original: does it.
            what: its name.
            target: the path or the file.
        """
        known = self._known
        if not is_path(target):
            if (path := path_of_open(target)) is not None and not known.aside.is_old(path):
                known.own.add(path)
                known.telling.begins(path)  # it changes until the script closes it
            return original()
        path = resolved(target)
        if self._is_skipped(path, what, target) or not self._has_way(path, what, target):
            return None
        known.own.add(path)
        began = time.time_ns() - CLOCK_NS
        known.telling.begins(path)
        result = original()
        known.telling.has_saved(path, began)
        return result

    def around_replacing_save(self, original: Callable[[Any], object], what: str, target: Any) -> object:  # noqa: ANN401
        """A function that writes a file beside the one of a path, and then moves it there: it gets a folder of dsopt's.

        Otherwise it would replace a file that nobody may write to, and a link instead of what that names, and leave the
        file beside it if somebody kills this process.
        """
        if not is_path(target):
            return original(target)
        place = place_of(target)
        if self._is_skipped(place, what, target):
            return None
        room = self._known.aside.room_for(place)
        if room is None:  # its folder is closed to us, say, or on a disk with nothing of the user's
            return self.around_save(lambda: original(target), what, target)
        file = room / place.name
        try:
            result = original(str(file))
            self._known.own.add(file)
            with alone(PATIENCE):
                self._moves.put(file, place, lambda: rename(file, place))
        finally:
            with contextlib.suppress(OSError), alone(PATIENCE):  # another rank may be about to use it
                for folder in (room, room.parent):
                    os.rmdir(folder)  # noqa: PTH106 - unless something is left in it
        return result

    def around_save_into(self, original: _Call, what: str, target: Any) -> object:  # noqa: ANN401
        """A function that writes into a folder: it opens, saves and removes each file as a script does."""
        if not is_path(target):
            return original()
        known, folder = self._known, resolved(target)
        if self._is_skipped(folder, what, target):
            return None
        before = numbers_in(folder, DEPTH)
        is_users = any(map(known.aside.is_old, before))
        if not os.path.lexists(folder):
            known.own.add(folder)
        result = original()
        for file, number in numbers_in(folder, DEPTH).items():
            if before.get(file) != number or file in known.own:
                known.owns(file, is_beside_users=is_users)
        return result

    def around_save_vocabulary(self, original: _Call, model: Any, folder: Any, *prefix: Any, **named: Any) -> object:  # noqa: ANN401
        """`save` of a tokenizer's model, which opens the files of its kind by itself."""
        name = next(iter((*prefix, *named.values())), None)
        files = _VOCABULARIES.get(type(model).__name__, ()) if is_path(folder) else ()
        paths = [os.path.join(folder, f"{name}-{file}" if name else file) for file in files]  # noqa: PTH118
        act = functools.partial(original, model, folder, *prefix, **named)
        for path in paths:
            act = functools.partial(self.around_save, act, f"{type(model).__name__}.save", path)
        saved = act()
        return paths if saved is None else saved

    def _is_skipped(self, path: Path, what: str, target: object) -> bool:
        """Whether nothing is saved there, because another training or rank has."""
        if not self._known.users.has_others(path):
            return False
        self._skip(path, what, target)
        return True

    def _has_way(self, path: Path, what: str, target: object) -> bool:
        if self._written.makes_way(path):
            return True
        self._skip(path, what, target)
        return False

    def _skip(self, path: Path, what: str, target: object) -> None:
        self._known.say(f"{what} over existing files", target)
        self._known.skips(path)
