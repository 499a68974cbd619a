"""Names that a script gives to functions of files, and what they stand for."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dsopt.protocol.run_dir import ASIDE

HIDDEN_ASIDE: Final = f".{ASIDE}"  # where no folder of the run is on the same file system


def is_path(value: object) -> bool:
    """Whether something is a path."""
    return isinstance(value, str | bytes | os.PathLike)


def resolved(path: Any) -> Path:  # noqa: ANN401 - of a path
    """What a name names, links followed."""
    return Path(os.path.realpath(os.fsdecode(path)))


def place_of(path: Any) -> Path:  # noqa: ANN401 - of a path
    """Where a name stands, whatever it names: a link is not followed, unless a slash says that a folder is meant."""
    if os.fsdecode(path).endswith(("/", "/.")):
        return resolved(path)
    absolute = Path(os.fsdecode(path))
    if not absolute.is_absolute():
        absolute = Path.cwd() / absolute
    if absolute.name in ("", ".."):
        return Path(os.path.realpath(absolute))
    return Path(os.path.realpath(absolute.parent)) / absolute.name


def is_folder(path: Path) -> bool:
    """Whether it is a folder, and no link to one."""
    return os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114 - these tell of nothing closed to us


def are_one(one: Path, other: Path) -> bool:
    """Whether two names are of one file."""
    try:
        return os.path.samestat(one.lstat(), other.lstat())
    except OSError:
        return False


def path_of_open(file: Any) -> Path | None:  # noqa: ANN401 - whatever a script has
    """Where a file is that is open, if that can be told; its own name may be a number, or of another folder."""
    try:
        number = file.fileno()
        path = Path(f"/proc/self/fd/{number}").readlink()
        return path if os.path.samestat(os.fstat(number), path.stat()) else None
    except (AttributeError, OSError, TypeError, ValueError):  # it is none, was removed, or is closed
        return None


def is_aside(path: Path) -> bool:
    """Whether it is where dsopt keeps something of the user's beside it, while a run lasts."""
    return HIDDEN_ASIDE in path.parts


def may_be_plain(path: Path) -> bool:
    """Whether it is a file, or may become one: to open a pipe may take for ever."""
    return os.path.isfile(path) or not os.path.lexists(path)  # noqa: PTH113


def has_content(path: Path) -> bool:
    """Whether a file has any."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def is_empty(folder: Path) -> bool:
    """Whether nothing is in a folder, as far as that can be told."""
    try:
        return next(folder.iterdir(), None) is None
    except OSError:
        return False


def files_at(path: Path, depth: int) -> Iterator[Path]:
    """A file itself, or those in a folder, so many levels deep; a link is no folder."""
    if not is_folder(path):
        yield path
    elif depth > 0:
        for entry in path.iterdir():
            yield from files_at(entry, depth - 1)


def numbers_in(folder: Path, depth: int) -> dict[Path, int]:
    """The numbers of the files in a folder, as far as they can be seen."""
    found = {}
    with contextlib.suppress(OSError):
        for file in files_at(folder, depth) if is_folder(folder) else ():
            with contextlib.suppress(OSError):
                found[file] = file.lstat().st_ino
    return found
