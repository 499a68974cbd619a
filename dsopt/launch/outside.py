"""Finds what a run leaves outside its own folder: checkpoints that a script saves where nobody told it to.

Whoever sees to the end of a run notes it in the run's folder, also if the worker was killed.
"""

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dsopt.launch.beside import went_on_beside
from dsopt.launch.in_place import saves_in_place
from dsopt.launch.told import told_here
from dsopt.protocol.checkpoint_names import FILE, FOLDER
from dsopt.protocol.events import Saved
from dsopt.protocol.given import read_given_json
from dsopt.protocol.run_dir import RunDir
from dsopt.protocol.text import plain_text

_DEPTH: Final = 3
_MOST: Final = 20_000  # entries to look at: not all of a folder of data
_AFTER: Final = "outside.json"  # and what is otherwise since it ended
# a script may write there
_UNREADABLE: Final = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError)

Traces = Mapping[Path, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """What was there when a run began: in which folder, what is passed over there, and its traces."""

    folder: Path
    passed_over: Collection[Path]
    traces: Traces


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a run has left.

    Attributes:
        paths: what looks like checkpoints and appeared, changed or went in the working folder while it ran.
        saves_in_place: whether a run beside it would save to the same files (`launch/in_place.py`).
    """

    paths: tuple[Path, ...] = ()
    saves_in_place: bool = False


def note_before(run_dir: RunDir, folder: Path, passed_over: Collection[Path]) -> None:
    """Notes what looks like a checkpoint in the working folder of a run that is about to begin.

    Raises:
        OSError: its folder cannot be written to.
    """
    found = {str(path): number for path, number in traces(folder, passed_over).items()}
    passed = [str(path) for path in passed_over]
    content = {"folder": str(folder), "number": folder.stat().st_ino, "passed_over": passed, "traces": found}
    run_dir.write_json(run_dir.before, content)


def in_place_before_undone(run_dir: RunDir) -> bool:
    """Whether a run has saved in place, asked before anything of it is undone, now or by an earlier try."""
    before = _before(run_dir)
    is_seen = before is not None and saves_in_place(run_dir, before.folder)
    return is_seen or noted(run_dir).saves_in_place


def note_after(run_dir: RunDir, until_ns: int, *, is_in_place: bool, is_late: bool) -> None:
    """Notes what a run has left, once it is over and undone; what is newer than until then is the user's.

    `is_late`: nobody was there when it ended, so that the user may have removed what is gone.
    """
    before = _before(run_dir)
    if before is None:
        return
    after = traces(before.folder, before.passed_over)
    new = [path for path in new_traces(before.traces, after) if path in after or not is_late]
    theirs = set[Path]()
    with contextlib.suppress(OSError):  # of a run whose folder goes
        theirs = _of_others(run_dir)
    found = {str(path): after.get(path) for path in new if path not in theirs and _changed_ns(path) <= until_ns}
    with contextlib.suppress(*_UNREADABLE):  # a full disk
        run_dir.write_json(run_dir.path / _AFTER, {"paths": found, "saves_in_place": is_in_place})


def _of_others(run_dir: RunDir) -> set[Path]:
    """What runs that went on beside one have told to save, or to save in, and not what this one has left there.

    These see to it themselves.
    """
    theirs = {Path(event.path) for other in went_on_beside(run_dir) for event in told_here(other, Saved)}
    own = {Path(event.path) for event in told_here(run_dir, Saved) if os.path.lexists(event.path)}
    return _with_parents(theirs) - _with_parents(own)


def _with_parents(paths: Collection[Path]) -> set[Path]:
    return {*paths, *(path.parent for path in paths)}


def noted(run_dir: RunDir) -> Left:
    """What was noted of a run that is over; nothing if nobody could."""
    with contextlib.suppress(*_UNREADABLE):
        found = _read(run_dir, _AFTER)
        return Left(paths=tuple(map(Path, found["paths"])), saves_in_place=found["saves_in_place"] is True)
    return Left()


def still_left(results: Path) -> Iterator[Path]:
    """What runs in a results folder have left that is there as they left it, those that were interrupted, too.

    Raises:
        OSError: the folder is closed to this user.
    """
    for path in results.iterdir() if results.is_dir() else ():
        yield from left_by(path) or ()


def left_by(run_dir: Path) -> list[Path] | None:
    """What a run has left that is there as it left it; None if that was not noted, or cannot be read."""
    try:
        paths: Mapping[str, int | None] = dict(_read(RunDir(run_dir), _AFTER)["paths"])
        noted_ns = (run_dir / _AFTER).stat().st_mtime_ns
    except _UNREADABLE:
        return None
    found = []
    for left, number in paths.items():
        with contextlib.suppress(*_UNREADABLE):
            if number is not None and _number(Path(left)) == number and _newest_ns(Path(left)) <= noted_ns:
                found.append(Path(left))
    return found


def shown_paths(folder: Path, paths: Iterable[Path]) -> tuple[str, ...]:
    """Those in a working folder, as people are told, without it."""
    return tuple(sorted(plain_text(str(path.relative_to(folder))) for path in {*paths} if path.is_relative_to(folder)))


def _before(run_dir: RunDir) -> "_Before | None":
    with contextlib.suppress(*_UNREADABLE):
        found = _read(run_dir, run_dir.before.name)
        was = {Path(path): int(number) for path, number in found["traces"].items()}
        for text in (found["folder"], *found["passed_over"], *found["traces"]):
            if b"\0" in os.fsencode(text):
                return None
        return _Before(folder=Path(found["folder"]), passed_over=[*map(Path, found["passed_over"])], traces=was)
    return None


def _read(run_dir: RunDir, name: str) -> Any:  # noqa: ANN401 - what this module has written, unless a script has
    """What was noted in the folder of a run that this user's worker has made.

    Raises:
        OSError: nothing, or in the folder of another.
        ValueError: it is no JSON.
    """
    if not run_dir.is_own:
        raise PermissionError(run_dir.mark)
    return read_given_json(run_dir.path / name)


def _newest_ns(path: Path) -> int:
    """When somebody last wrote to a file, or to one in a folder."""
    files = path.iterdir() if path.is_dir() and not path.is_symlink() else [path]
    return max((file.lstat().st_mtime_ns for file in files), default=0)


def _changed_ns(path: Path) -> int:
    """When somebody last changed something, or moved or copied it there."""
    with contextlib.suppress(OSError):
        return max(path.lstat().st_mtime_ns, path.lstat().st_ctime_ns)
    return 0


def traces(folder: Path, passed_over: Collection[Path]) -> Traces:
    """What looks like a checkpoint in a folder, each with what changes with it.

    That is a file's time of last change in nanoseconds, and of a folder, what is in it: its own time also changes with
    what has come and gone again.

    Args:
        folder: the working folder of the runs.
        passed_over: folders in it to skip; hidden ones are always skipped.
    """
    found: dict[Path, int] = {}
    left = _MOST
    pending = [(folder, 1)]
    while pending and left > 0:
        here, depth = pending.pop()
        try:
            entries = list(os.scandir(here))
        except OSError:
            continue
        for entry in entries:
            left -= 1
            path = Path(entry.path)
            if entry.name.startswith(".") or path in passed_over:
                continue
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
                pattern = FOLDER if is_folder else FILE
                if pattern.fullmatch(entry.name):
                    found[path] = _number(path)
            except OSError:  # it is gone already
                continue
            if is_folder and depth < _DEPTH:
                pending.append((path, depth + 1))
    return found


def _number(path: Path) -> int:
    """What changes with a file or folder.

    Raises:
        OSError: it is gone.
    """
    if path.is_symlink() or not path.is_dir():
        return path.stat().st_mtime_ns
    with os.scandir(path) as entries:
        names = sorted(f"{entry.name}/{entry.inode()}" for entry in entries)
    digest = hashlib.blake2b("\0".join(names).encode(errors="surrogateescape"), digest_size=6)
    return int.from_bytes(digest.digest(), "big")


def new_traces(before: Traces, after: Traces) -> list[Path]:
    """What appeared, changed or disappeared between two looks; it does not list files in a folder that it lists."""
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return sorted(path for path in changed if not changed & set(path.parents))
