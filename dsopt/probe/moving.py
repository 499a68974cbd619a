"""Lets a script move, copy and link files, and knows afterwards what is the run's own and what the user's."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from dsopt.probe.known import Known
from dsopt.probe.places import are_one, files_at, is_aside, is_folder, is_path, place_of, resolved
from dsopt.probe.telling import DEPTH
from dsopt.probe.writing import PATIENCE
from dsopt.protocol.alone import alone

_WHOLE: Final = 30  # levels of a folder that the run has made
_Call = Callable[..., Any]


class Moves:
    """What a script moves, copies and names anew, in one process.

    Args:
        known: of files.
    """

    def __init__(self, known: Known) -> None:
        self._known = known

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
        known = self._known
        if known.was_skipped(old):
            known.skips(new)
            return None
        if is_aside(old) or known.territory.is_record(old) or known.territory.is_record(new):
            return None
        if known.territory.holds_the_run(old) or known.territory.holds_the_run(new):
            if not os.path.lexists(old) or not is_folder(new.parent):
                return act()
            known.say("moving or replacing a folder with this run's own", old)
            known.stayed.add(old)
            known.skips(new)
            return None
        return self.put(old, new, act)

    def put(self, old: Path, new: Path, act: Callable[[], object]) -> object:
        """Moves something of the run's or of the user's by `act`; what is replaced comes back if it is the user's."""
        known = self._known
        moved = self._saved_at(old)
        complete = moved & known.own  # another process may go on saving the rest
        is_own = not known.users.is_theirs(old)
        for path in moved:  # before it is there: somebody may kill this process in between
            known.telling.comes(new / path.relative_to(old), path)
        for path in self._written_at(old):  # such as a file that names the last checkpoint
            known.telling.writes(new / path.relative_to(old), path)
        if known.is_new_folder(old):
            known.telling.made_folder(new, old)
        result = self._moved(old, new, act, is_saved=bool(moved))
        if is_own:
            known.made.add(new)
        known.aside.has_moved(old, new)
        known.own -= {*moved, new}
        for was in moved:
            path = new / was.relative_to(old)
            if known.aside.is_old(path):  # the user's may have come to a path of the run's own
                continue
            if was in complete:
                known.owns(path)
            else:
                known.own.add(path)
        known.moves(old, new)
        return result

    def _written_at(self, place: Path) -> list[Path]:
        """What the script has written, but not saved, that is at a place or in a folder."""
        known, depth = self._known, self._depth_of(place)
        with contextlib.suppress(OSError):  # another rank moves it
            files = [path for path in files_at(place, depth) if path not in known.own and not path.is_symlink()]
            by_others = known.saved_by_run.no_users(files) - known.saved_by_run.among(files)
            return [path for path in files if path in by_others or known.has_written(path)]
        return []

    def _depth_of(self, place: Path) -> int:
        return _WHOLE if self._known.is_new_folder(place) else DEPTH

    def _saved_at(self, place: Path) -> set[Path]:
        """What the run has saved that is at a place, or in a folder, whichever process of it has."""
        known = self._known
        if not is_folder(place):
            found = {place} if place in known.own or known.saved_by_run.has(place) else set()
        else:
            found = {path for path in tuple(known.own) if path.is_relative_to(place)}
            with contextlib.suppress(OSError):  # another rank moves it
                found |= known.saved_by_run.among(files_at(place, self._depth_of(place)))
        theirs = {path for path in found if not is_folder(path) and known.aside.is_old(path)}
        known.own -= theirs  # the user's may have come to a path of the run's own
        return found - theirs

    def around_copy(self, original: _Call, src: Any, dst: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """`shutil.copyfile`, which `copy` and `copy2` call, too. It opens the file as a script does."""
        act = functools.partial(original, src, dst, *args, **kwargs)
        if not is_path(src) or not is_path(dst):
            return act()
        known, path = self._known, resolved(dst)
        is_link = not kwargs.get("follow_symlinks", True) and os.path.islink(os.fsdecode(src))  # noqa: PTH114
        is_saved = not is_link and os.path.exists(resolved(src)) and known.is_saved(resolved(src))  # noqa: PTH110
        with alone(PATIENCE):
            # one that is older is kept where it is opened, unless it is in a place that is nobody's loss otherwise
            is_kept = known.aside.is_old(path) and not known.aside.is_exempt(path)
            if not is_kept and known.users.would_be_replaced(path, is_saved=is_saved):
                with _unless_gone(path):
                    known.aside.take(path)
        if is_saved:
            known.own.add(path)
            if not known.users.is_users(path):
                known.telling.begins(path)  # `copy2` changes its date after this
        return act()

    def around_symlink(self, original: _Call, src: Any, dst: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """A link may name the last checkpoint: a new one goes with what it names."""
        if kwargs.get("dir_fd") is not None or not is_path(dst):
            return original(src, dst, *args, **kwargs)
        self._known.telling.is_making(place_of(dst))
        result = original(src, dst, *args, **kwargs)
        self._known.owns(place_of(dst))
        return result

    def around_link(self, original: _Call, src: Any, dst: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """`os.link`: what it names once more goes with what it names, if that is of this run."""
        act = functools.partial(original, src, dst, *args, **kwargs)
        if not is_path(src) or not is_path(dst) or not kwargs.keys().isdisjoint(("src_dir_fd", "dst_dir_fd")):
            return act()
        known, place, source = self._known, place_of(dst), resolved(src)
        is_saved = source in known.own or known.saved_by_run.has(source)
        if is_saved:
            known.telling.comes(place, source)
        result = act()
        known.aside.has_linked(place)
        if is_saved:
            known.owns(place)
        return result

    def _moved(self, old: Path, new: Path, move: _Call, *, is_saved: bool) -> object:
        """Lets the script move something; what is replaced, and what is moved, comes back if it is the user's."""
        known = self._known
        kept, may_replace = None, os.path.lexists(old) and not is_folder(old) and not is_folder(new)
        if may_replace and known.users.would_be_replaced(new, is_saved=is_saved):
            with _unless_gone(new):
                kept = known.aside.keep(new)
        try:
            if known.users.would_be_lost(old, known.users.is_theirs):
                known.aside.moves(old, new)
            return move()
        except BaseException:
            if kept is not None:
                known.aside.give_back(kept, new)
            raise


@contextlib.contextmanager
def _unless_gone(path: Path) -> Iterator[None]:
    """It is no error that something cannot be taken aside which another rank has moved."""
    try:
        yield
    except OSError:
        if os.path.lexists(path):
            raise
