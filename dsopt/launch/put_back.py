"""Undoes what a run's script has done to the user's files: puts back what it removed, replaced or moved.

Runs of one worker on devices of their own may have moved the same file one after the other.
"""

import contextlib
import filecmp
import operator
import os
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Final

from dsopt.launch.beside import runs_beside, went_on_beside
from dsopt.launch.told import told, told_here
from dsopt.protocol import kept
from dsopt.protocol.alone import alone
from dsopt.protocol.birth import birth_ns, has_birth, was_there
from dsopt.protocol.events import Moved
from dsopt.protocol.run_dir import ASIDE, RunDir

_PATIENCE: Final = 60.0  # seconds for whoever is at the user's files now


def put_back(run_dir: RunDir, until_ns: int) -> bool:
    """Moves files and folders back to where they were before a run, the last moved first.

    Its processes are gone. What has come in their place goes to the run's own folder. What is newer than until then,
    in nanoseconds since the epoch, is the user's, and stays. Returns whether all is done.
    """
    is_done, asides, returned, made = True, set[Path](), set[Path](), set[Path]()
    events = [*_last_first(told_here(run_dir, Moved))]
    own = {(event.path, event.inode) for event in events}
    beside = _Beside([*_moved_beside(run_dir)] if events else [])
    for event in events:
        asides.add(Path(event.to).parent)
        try:
            with alone(_PATIENCE):
                _undo(event, run_dir, until_ns, beside, returned, own, made)
        except OSError:  # such as a full disk
            is_done = False
    # those that were made to put something back, which then went on from there, inner ones first
    for folder in [*sorted(made, reverse=True), *(folder for folder in asides if folder.name.endswith(ASIDE))]:
        with contextlib.suppress(OSError):
            folder.rmdir()  # unless something is in it
    return is_done


def still_away(run_dir: RunDir) -> list[Moved]:
    """What is where a run has moved it, of whatever machine."""
    away = [event for event in told(run_dir, Moved) if _is_at(event, event.to)]
    # once all is undone, the user may have moved it there
    is_kept = {event.to for event in away if Path(event.to).parent.name.endswith(ASIDE)}
    return [event for event in away if event.to in is_kept or not run_dir.undone_on(event.host).exists()]


def _last_first(events: Iterable[Moved]) -> Iterator[Moved]:
    """Each rank's last event first, whatever its clock said; those of several ranks by their clock."""
    latest, ordered = defaultdict[int, int](int), list[tuple[int, Moved]]()
    for event in events:
        latest[event.rank] = max(latest[event.rank], event.time)
        ordered.append((latest[event.rank], event))
    ordered.sort(key=operator.itemgetter(0))
    return (event for _, event in reversed(ordered))


def _undo(
    event: Moved,
    run_dir: RunDir,
    until_ns: int,
    beside: "_Beside",
    returned: set[Path],
    own: Set[tuple[str, str]],
    made: set[Path],
) -> None:
    """Undoes one move.

    Args:
        event: tells of it.
        run_dir, until_ns: as `put_back`.
        beside: what runs beside this one have moved.
        returned: where this run has put something back already.
        own: all that this run has moved, and from where; an earlier try, which was killed, may have put some back.
        made: gets the folders that had to be made for it.
    """
    origin, now = _place_now(event.path, event, beside), _found(event, run_dir, beside)
    if now is None or now == origin:
        return  # somebody has moved it since, or put something else there
    if not _has_made_folder(origin.parent, run_dir, until_ns, made):
        return
    is_there = os.path.lexists(origin)
    if is_there and _changed_ns(origin) > until_ns:
        return
    if event.is_copy:
        _give_content(event, run_dir)
    elif _has_number(str(origin), event.inode):
        if now.lstat().st_nlink > 1:  # the script was ended before it replaced it
            now.unlink()
    elif is_there and origin not in returned and _is_others(origin, event, own, beside):
        keep_replaced(now, run_dir)  # this run has moved what the other one had made
    else:
        if is_there and not is_copy(origin, now):
            keep_replaced(origin, run_dir)
        now.rename(origin)
        kept.note_returned(origin)
        returned.add(origin)


def _is_others(origin: Path, event: Moved, own: Set[tuple[str, str]], beside: "_Beside") -> bool:
    """Whether another run has put back there what is there, and had moved it first: later, it was this run's."""
    inode = str(origin.lstat().st_ino)
    moved = [moved.time for moved in beside.by_inode.get(inode, ()) if moved.path == str(origin)]
    is_later = bool(moved) and min(moved) > event.time
    return (str(origin), inode) not in own and not is_later and kept.is_returned(origin, since_ns=event.time)


def is_copy(path: Path, users: Path) -> bool:
    """Whether a file has what is in the user's, as data that a script opens to read and write, and does not change."""
    files = [file.is_file() and not file.is_symlink() for file in (path, users)]
    return all(files) and filecmp.cmp(path, users, shallow=False)


def _give_content(event: Moved, run_dir: RunDir) -> None:
    """Gives a file its content back that stayed where it was; nothing was to be moved there."""
    origin, copy = Path(event.path), Path(event.to)
    if _has_number(event.path, event.inode):
        if not filecmp.cmp(copy, origin, shallow=False):  # others may have written to it, too
            shutil.copy2(origin, _new_in(run_dir.replaced) / origin.name)
        shutil.copyfile(copy, origin)
        shutil.copystat(copy, origin)
        copy.unlink()
    elif os.path.lexists(origin):
        keep_replaced(copy, run_dir)
    else:
        shutil.move(copy, origin)


def _has_made_folder(folder: Path, run_dir: RunDir, until_ns: int, made: set[Path]) -> bool:
    """Makes a folder in the place of what the run has put there; False: what is there is newer."""
    for path in reversed((folder, *folder.parents)):
        if os.path.lexists(path) and not path.is_dir():
            if _changed_ns(path) > until_ns:
                return False
            keep_replaced(path, run_dir)
    made |= {path for path in (folder, *folder.parents) if not os.path.lexists(path)}
    folder.mkdir(parents=True, exist_ok=True)
    return True


def _changed_ns(path: Path) -> int:
    """When somebody last changed a file, its name or its date, or any in a folder.

    The date of a folder does not tell: it changes where something is taken out of it again. An empty one was made then.
    Where only its own entry has changed, somebody has moved it.
    """
    found = path.lstat()
    if path.is_dir() and not path.is_symlink():
        moved_ns = found.st_ctime_ns if found.st_ctime_ns > found.st_mtime_ns else 0
        return max(moved_ns, max(map(_changed_ns, path.iterdir()), default=birth_ns(path) or 0))
    return max(found.st_mtime_ns, found.st_ctime_ns)


def keep_replaced(path: Path, run_dir: RunDir) -> None:
    """Moves what has come in the place of the user's to the run's own folder."""
    keep(path, run_dir.replaced)


def keep(path: Path, folder: Path) -> None:
    """Moves something into a folder of the run's own, where nothing of its name is in the way."""
    shutil.move(path, _new_in(folder) / path.name)


def _new_in(folder: Path) -> Path:
    new = folder / uuid.uuid4().hex[:8]
    new.mkdir(mode=0o700, parents=True)
    return new


class _Beside:
    """What runs beside this one have moved, by where from and where to."""

    def __init__(self, moves: Sequence[Moved]) -> None:
        self.by_inode: defaultdict[str, list[Moved]] = defaultdict(list)
        self._came: defaultdict[Path, list[Moved]] = defaultdict(list)
        self._went: defaultdict[Path, list[Moved]] = defaultdict(list)
        for moved in moves:
            self.by_inode[moved.inode].append(moved)
            self._came[Path(moved.path)].append(moved)
            self._went[Path(moved.to)].append(moved)

    def is_back(self, folder: Path, time_ns: int) -> bool:
        """Whether a folder was away at a time, which a run had moved away, and is there again."""
        went = [m for m in self._came.get(folder, ()) if m.time < time_ns and _has_number(m.path, m.inode)]
        came = [m for m in self._went.get(folder, ()) if m.time < time_ns]
        return any(all(back.inode != m.inode or back.time < m.time for back in came) for m in went)

    def above(self, place: Path) -> Iterator[Moved]:
        """The moves of folders that the place is in, or was."""
        for folder in place.parents if self.by_inode else ():
            yield from self._came.get(folder, ())
            yield from self._went.get(folder, ())


def _place_now(path: str, event: Moved, beside: _Beside) -> Path:
    """Where something is now that an event names: runs beside may have moved a folder above it since.

    Or one had moved it before, and that is undone; unless it could not, since another folder was in the way.
    """
    place = Path(path)
    for moved in sorted(beside.above(place), key=lambda moved: -moved.time):  # one that failed may have been repeated
        came, went = Path(moved.path), Path(moved.to)
        if moved.time > event.time and came in place.parents and _has_number(moved.to, moved.inode):
            return went / place.relative_to(came)
        if moved.time < event.time and went in place.parents and _has_number(moved.path, moved.inode):
            is_in_the_way = _was_made(went, moved.time) and not beside.is_back(went, moved.time)
            return place if is_in_the_way else came / place.relative_to(went)
    return place


def _was_made(folder: Path, time_ns: int) -> bool:
    """Whether this folder was there at a time, empty or not; False if nobody can know."""
    with contextlib.suppress(OSError):
        return has_birth(folder) and (birth_ns(folder) or time_ns + 1) <= time_ns
    return False


def _found(event: Moved, run_dir: RunDir, beside: _Beside) -> Path | None:
    """Where a file is now: where this run has moved it, or where runs beside it have moved it from there.

    Whoever undid a run may also have taken it for what had come in the place of the user's, and kept it.
    """
    place = _place_now(event.to, event, beside)
    if _is_at(event, str(place)):
        return place
    later = (moved for moved in beside.by_inode.get(event.inode, ()) if moved.time > event.time)
    moved = next((Path(moved.to) for moved in later if _is_at(event, moved.to)), None)
    if moved is not None or event.is_copy:
        return moved
    kept_ones = (path for run in (run_dir, *runs_beside(run_dir)) for path in run.replaced.glob("*/**/*"))
    same = (path for path in kept_ones if _has_number(str(path), event.inode))
    return next((path for path in same if _was_there(path, event.time)), None)  # numbers are given again


def _was_there(path: Path, time_ns: int) -> bool:
    with contextlib.suppress(OSError):
        return was_there(path, time_ns)
    return False


def _is_at(event: Moved, place: str) -> bool:
    return os.path.isfile(place) if event.is_copy else _has_number(place, event.inode)  # noqa: PTH113 - takes any text


def _has_number(place: str, inode: str) -> bool:
    """Whether a file of this number is there; the number of its device may have changed with a restart."""
    with contextlib.suppress(OSError):
        return str(Path(place).lstat().st_ino) == inode
    return False


def _moved_beside(run_dir: RunDir) -> Iterator[Moved]:
    """What runs have moved that went on beside this one."""
    for other in went_on_beside(run_dir):
        with contextlib.suppress(OSError):
            yield from told_here(other, Moved)
