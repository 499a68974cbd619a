"""Removes the folders and links of a run that say that something was saved, once that is gone."""

import contextlib
import os
import shutil
import stat
from collections.abc import Collection, Sequence
from pathlib import Path

from dsopt.launch.told import told_last
from dsopt.protocol.birth import birth_ns, has_birth
from dsopt.protocol.events import Saved
from dsopt.protocol.file_events import identity_of
from dsopt.protocol.run_dir import ASIDE, RunDir


def remove_rooms(told: Sequence[Saved]) -> None:
    """Removes what was being made in dsopt's own folders when somebody killed the run."""
    for room in (Path(event.path) for event in told if is_room(event)):
        with contextlib.suppress(OSError):
            shutil.rmtree(room)
        with contextlib.suppress(OSError):
            room.parent.rmdir()  # unless it has others


def is_room(event: Saved) -> bool:
    """Whether an event is of one of dsopt's own folders."""
    return Path(event.path).parent.name.endswith(ASIDE)


def is_there(event: Saved) -> bool:
    """Whether the folder that an event tells of is there, and not another one at its path."""
    path = Path(event.path)
    with contextlib.suppress(OSError):
        return stat.S_ISDIR(path.lstat().st_mode) and identity_of(path) == (event.inode, event.born)
    return False


def remove_empty(run_dir: RunDir, told: Sequence[Saved], until_ns: int, kept: Collection[str]) -> None:
    """Removes folders that are empty now, links that point to nothing, and what is so without them."""
    _remove_last_made(run_dir, until_ns)
    while _remove_folders(told, until_ns, kept) or _remove_links(told, until_ns):
        _remove_last_made(run_dir, until_ns)


def _remove_last_made(run_dir: RunDir, until_ns: int) -> None:
    """Removes what a rank was about to make when somebody killed it, if it did, and it is empty.

    Whatever else it had told after that, it would have told of that first.
    """
    for path in (Path(event.path) for event in told_last(run_dir) if not event.inode):
        with contextlib.suppress(OSError):
            if not has_birth(path) or not run_dir.mark.stat().st_mtime_ns < (birth_ns(path) or 0) <= until_ns:
                continue
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode):
                path.rmdir()
            elif not path.exists() or (stat.S_ISREG(found.st_mode) and not found.st_size):
                path.unlink()


def _remove_folders(told: Sequence[Saved], until_ns: int, kept: Collection[str]) -> bool:
    """Removes folders that a run has made, and those in them of its time, inner ones first, if nothing is in them.

    Returns:
        Whether there was one.
    """
    others = [event for event in told if event.inode and event.path not in kept and not is_room(event)]
    made = {(event.path, event.inode, event.born, bool(event.changed)) for event in others}
    has_removed = False
    for path, inode, born, is_of_save in sorted(made, reverse=True):
        with contextlib.suppress(OSError):
            if identity_of(Path(path)) != (inode, born) or os.path.islink(path):  # noqa: PTH114 - takes any text
                continue
            for folder, _, _ in os.walk(path, topdown=False) if is_of_save and born else [(path, (), ())]:
                with contextlib.suppress(OSError):
                    if folder not in kept and (birth_ns(Path(folder)) or 0) <= until_ns:
                        os.rmdir(folder)  # noqa: PTH106 - unless something is left in it
                        has_removed = True
    return has_removed


def _remove_links(told: Sequence[Saved], until_ns: int) -> bool:
    """Removes links that the run has made and that point to nothing now. Returns whether there was one."""
    links = {(Path(event.path), event.inode, event.born) for event in told if os.path.islink(event.path)}  # noqa: PTH114
    has_removed = False
    for path, inode, born in links:
        with contextlib.suppress(OSError):
            is_it = identity_of(path) == (inode, born) and path.lstat().st_mtime_ns <= until_ns
            if is_it and not path.exists():
                path.unlink()
                has_removed = True
    return has_removed
