"""Events of files: what they say of one as it is now."""

import os
import platform
from dataclasses import replace
from pathlib import Path

from dsopt.protocol.birth import birth_ns
from dsopt.protocol.events import FilePath, Moved, Saved


def identity_of(path: Path) -> tuple[str, str] | None:
    """Number and birth of what is at a path, as events tell them; another thing that comes there has others.

    The birth is empty where the file system tells none. None: nothing is there.
    """
    try:
        number, born = path.lstat().st_ino, birth_ns(path)
    except OSError:
        return None
    return str(number), "" if born is None else str(born)


def saved_file(rank: int, path: Path, now: Path | None = None) -> Saved:
    """A file as it is now, at its path or, before it is moved there, where it is now.

    Raises:
        OSError: it is not there.
    """
    found, born = (now or path).lstat(), birth_ns(now or path)
    return Saved(
        rank=rank,
        path=FilePath(str(path)),
        host=platform.node(),
        inode=str(found.st_ino),
        size=found.st_size,
        changed=str(found.st_mtime_ns),
        born="" if born is None else str(born),
    )


def being_saved(rank: int, path: Path, now: Path | None = None) -> Saved:
    """A file that is about to be written."""
    return replace(saved_file(rank, path, now), size=0, changed="")


def being_made(rank: int, path: Path) -> Saved:
    """What is about to be made, a file, folder or link, and has no number yet."""
    return Saved(rank=rank, path=FilePath(str(path)), host=platform.node(), inode="", size=0, changed="")


def moved_file(rank: int, path: Path, to: Path, found: os.stat_result, time_ns: int, *, is_copy: bool = False) -> Moved:
    """A file or folder that is about to be moved, or was copied, as it is now."""
    return Moved(
        rank=rank,
        path=FilePath(str(path)),
        to=FilePath(str(to)),
        host=platform.node(),
        inode=str(found.st_ino),
        time=time_ns,
        is_copy=is_copy,
    )
