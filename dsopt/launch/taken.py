"""What a run has written anew beside what it saved, which is gone: its own folder gets it.

Else a script that looks for its last checkpoint would find a file that names one, and no checkpoint.
"""

import contextlib
import os
import re
import stat
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from dsopt.launch.emptied import is_room, is_there
from dsopt.launch.put_back import keep
from dsopt.launch.saved import is_much, is_older, weights_in
from dsopt.launch.told import has_told, has_told_formerly, told_ever_here
from dsopt.protocol.checkpoint_names import LOCK, RUN
from dsopt.protocol.events import End, Error, Moved, Oom, Saved, Step
from dsopt.protocol.file_events import identity_of
from dsopt.protocol.run_dir import RunDir

_POINTER_BYTES: Final = 4096


def take_written(run_dir: RunDir, told: Sequence[Saved], until_ns: int) -> None:
    """Takes what a script has written anew after its first step to the run's own folder, unless it is large.

    What is large goes beside what it saved. What is empty, such as a lock, stays but in folders that the run has made.
    So does what came in the place of the user's, which is then in `replaced`. What lies beside data that the script has
    made, or above that, may describe it, and stays, unless it also lies beside what was saved.
    """
    moved = told_ever_here(run_dir, Moved)
    theirs, numbers = {event.path for event in moved}, {event.inode for event in moved}
    saved = [event for event in weights_in(told) if event.path not in theirs and not is_room(event)]
    folders = {Path(event.path) for event in saved if is_there(event)}
    # a folder that a script has only made says nothing of what is beside it
    made = {event.path for event in saved if not event.inode}
    named = {Path(event.path) for event in saved if event.path not in made or event.changed or event.is_plain}
    beside = {folder for path in named for folder in (path.parent, path.parent.parent)}
    early = {(event.path, event.inode) for event in _early(told)}  # such a file is no other one if it is opened again
    later = [event for event in told if event.is_plain and event.born and not event.is_early]
    written = {(Path(event.path), event.inode, event.born) for event in later if event.inode not in numbers}
    of_saves = {
        path for path, _, _ in written if not (folders & named).isdisjoint(path.parents) or path.parent in beside
    }
    there = _written(told, until_ns)
    large = {path for path in there if path not in of_saves and _stays(path)}
    data = large | {path for path in there if (str(path), _number_of(path)) in early}
    above_data, above_large = ({folder for path in paths for folder in path.parents} for paths in (data, large))
    by_saves = {path.parent for path in named} | (folders & named)
    made_with_data = folders & {folder for path in large for folder in path.parents}
    for path, inode, born in written:
        with contextlib.suppress(OSError):
            found = path.lstat()
            is_it = identity_of(path) == (inode, born) and found.st_mtime_ns <= until_ns
            is_of_save, is_inside = path in of_saves, not folders.isdisjoint(path.parents)
            is_by_data = not made_with_data.isdisjoint(path.parents) or (not is_inside and path.parent in above_data)
            if path.parent in above_large and by_saves.isdisjoint(path.parents):
                continue
            counts = found.st_size > 0 or (is_inside and not is_by_data)
            if not is_it or not counts or (is_by_data and not is_of_save) or is_older(path, run_dir):
                continue
            if not is_much(path):
                keep(path, run_dir.own_path("saved", ""))
            elif is_of_save and (str(path), inode) not in early:
                path.unlink()


def take_early(run_dir: RunDir, told: Sequence[Saved], until_ns: int, *, is_alone: bool) -> None:
    """Takes what the script has written before its first step, where somebody would go on from it.

    That is in a folder that it made then, and in which it saved weights, or which is of one training by its name: a
    script that looks for its last run would find one without weights. A folder goes as a whole: if it holds data, or
    anything that the run has not told of, all of it stays. A lock from then goes, too, unless it is empty: who would
    remove it was ended.

    Of a run that was ended before its first step, all folders go, however large, if all of them can go as a whole, and
    nothing else may belong to them: it may be half of the data that the script prepares. `is_alone`: nobody else may
    use that.
    """
    early = _early(told)
    own = {path for path in _written(told, until_ns) if _is_new(path, run_dir)}
    saved = [Path(event.path) for event in weights_in(told) if event.changed or event.is_plain]
    gone = {folder for path in saved if not os.path.lexists(path) for folder in path.parents}
    begun = {Path(event.path) for event in early if is_there(event)}
    told_of = {folder for folder in begun if _files_in(folder) <= own}
    has_begun = has_told(run_dir, Step, Error, Oom, End) or has_told_formerly(run_dir, Step)
    if is_alone and not has_begun:
        inside = {path for path in own if not begun.isdisjoint(path.parents)}
        if told_of == begun and not any(map(_may_be_data, own - inside)):
            _take_all(inside, run_dir)
            own -= inside
    small = {folder for folder in told_of if not any(map(_stays, _files_in(folder)))}
    whole = small & (gone | _of_one_training(begun, small, own))
    locks = {path for path in own & {Path(event.path) for event in early} if LOCK.fullmatch(path.name)}
    for path in own:
        with contextlib.suppress(OSError):
            if (path in locks and path.lstat().st_size > 0) or not whole.isdisjoint(path.parents):
                keep(path, run_dir.own_path("saved", ""))


def _of_one_training(begun: set[Path], small: set[Path], own: set[Path]) -> set[Path]:
    """The topmost folders that are of one training, or hold such, with nothing beside them that may tell of them."""
    topmost = {folder for folder in begun if begun.isdisjoint(folder.parents)}
    runs = {folder for folder in begun if RUN.fullmatch(folder.name)}
    found = {folder for folder in topmost if folder in runs or any(folder in run.parents for run in runs)}
    files = filter(_may_be_data, own)
    beside = {one for path in files for one in found if path.parent == one.parent and not _points_to(path, one)}
    beside |= {one for one in found if any(other.parent == one.parent for other in topmost - small)}
    return found - beside


def _may_be_data(path: Path) -> bool:
    return path.suffix != ".log" and not LOCK.fullmatch(path.name)


def _take_all(files: Collection[Path], run_dir: RunDir) -> None:
    for path in files:
        with contextlib.suppress(OSError):
            if is_much(path):
                path.unlink()
            else:
                keep(path, run_dir.own_path("saved", ""))


def _number_of(path: Path) -> str:
    with contextlib.suppress(OSError):
        return str(path.lstat().st_ino)
    return ""


def _is_new(path: Path, run_dir: RunDir) -> bool:
    with contextlib.suppress(OSError):  # it has just gone
        return not is_older(path, run_dir)
    return False


def take_pointers(run_dir: RunDir, told: Sequence[Saved], gone: Collection[Path], until_ns: int) -> None:
    """Takes short files that name a folder which went, from beside or above it.

    One that lies beside data may describe that.
    """
    own = _written(told, until_ns)
    with_data = {path.parent for path in own if _stays(path)}
    for path in own:
        beside = [folder for folder in gone if path.parent in (folder.parent, folder.parent.parent)]
        with contextlib.suppress(OSError):
            points = path.parent not in with_data and any(_points_to(path, folder) for folder in beside)
            if points and not is_older(path, run_dir):
                keep(path, run_dir.own_path("saved", ""))


def is_common(folder: Path) -> bool:
    """Whether a folder may be for all trainings, such as `checkpoints`: those of one have a number or a time."""
    return not any(letter.isdigit() for letter in folder.name)


def _written(told: Sequence[Saved], until_ns: int) -> set[Path]:
    """The files that are there as the script has made them, by other ways than functions that save."""
    found = set[Path]()
    for path, event in ((Path(event.path), event) for event in told if event.is_plain and event.born):
        with contextlib.suppress(OSError):
            status = path.lstat()
            is_it = identity_of(path) == (event.inode, event.born) and status.st_mtime_ns <= until_ns
            if is_it and stat.S_ISREG(status.st_mode):
                found.add(path)
    return found


def _files_in(folder: Path) -> set[Path]:
    """The files and links in a folder, at any depth; links that point to nothing will go, too."""
    found = {Path(top, name) for top, folders, names in os.walk(folder) for name in (*folders, *names)}
    return {path for path in found if os.path.exists(path) and (path.is_symlink() or not path.is_dir())}  # noqa: PTH110


def _points_to(path: Path, folder: Path) -> bool:
    """Whether a short file names a folder."""
    with contextlib.suppress(OSError):
        return 0 < path.lstat().st_size <= _POINTER_BYTES and _names(path.read_bytes(), folder)
    return False


def _names(content: bytes, folder: Path) -> bool:
    """Whether a folder's name stands in a text, as a whole part of a path."""
    name = re.escape(os.fsencode(folder.name))
    return re.search(rb"(?<![^\s\"'/=:,(\[{])" + name + rb"(?![^\s\"'/,:;)\]}])", content) is not None


def _early(told: Sequence[Saved]) -> list[Saved]:
    return [event for event in told if event.is_plain and event.is_early and event.born]


def _stays(path: Path) -> bool:
    """Whether a file is there, and too large for the run's own folder, or weights; `latest` only names some."""
    with contextlib.suppress(OSError):
        return path.name != "latest" and is_much(path)
    return False
