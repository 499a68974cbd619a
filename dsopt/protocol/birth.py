"""When a file was made. Its date of change does not tell: a run may have appended to it, or copied it with its date."""

import ctypes
import functools
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

_HERE: Final = -100  # AT_FDCWD of fcntl.h: relative to the working folder
_NO_FOLLOW: Final = 0x100  # AT_SYMLINK_NOFOLLOW
_BIRTH: Final = 0x800  # STATX_BTIME of linux/stat.h
_SIZE: Final = 256
CLOCK_NS: Final = 2_000_000_000  # file systems' clocks may lag by so much
# of linux/magic.h: on an overlay, to change a file's mode or name makes it anew
_OVERLAY: Final = 0x794C7630
_LOCAL: Final = frozenset((0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994))  # ext4, XFS, btrfs, F2FS, tmpfs
_kinds: dict[int, int] = {}  # by device
_MASK_AT, _SECONDS_AT = 0, 80  # in struct statx: what the file system has filled in, and its stx_btime


def was_there(path: Path, began_ns: int) -> bool:
    """Whether something was there before a run began: a file, a link, or a folder with one.

    What the run has appended to was; what it has copied or unpacked was not, whatever its date says.

    A folder that is closed to us was there, and what in a folder is gone meanwhile was not. What is younger than now on
    this machine's own disks was there, too: its clock was ahead before, or the date is another machine's.

    Raises:
        OSError: it cannot be looked at.
    """
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - these tell of nothing closed to us
        try:
            return any(_inner_was_there(inner, began_ns) for inner in path.iterdir())
        except PermissionError:
            return True
    changed_ns, kind = path.lstat().st_mtime_ns, _kind_of(path)
    born_ns = None if kind == _OVERLAY else birth_ns(path)
    if born_ns is None:
        is_ahead = kind == _OVERLAY and _is_ahead(changed_ns)
        return changed_ns < began_ns - CLOCK_NS or is_ahead
    if kind in _LOCAL:  # this machine's clock
        return born_ns <= began_ns or _is_ahead(born_ns)
    return born_ns < began_ns - CLOCK_NS or (born_ns <= began_ns and changed_ns < began_ns - CLOCK_NS)


def _is_ahead(date_ns: int) -> bool:
    return date_ns > time.time_ns() + CLOCK_NS


def has_birth(path: Path) -> bool:
    """Whether the file system tells when this was made; else its date alone tells its age."""
    return _kind_of(path) != _OVERLAY and birth_ns(path) is not None


def _inner_was_there(path: Path, began_ns: int) -> bool:
    try:
        return was_there(path, began_ns)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def birth_ns(path: Path) -> int | None:
    """When the file at a path was made, in nanoseconds since the epoch; a link is not followed.

    None if the file system or the C library does not tell, or nothing is there.
    """
    statx = _statx()
    if statx is None:
        return None
    found = ctypes.create_string_buffer(_SIZE)
    if statx(_HERE, os.fsencode(path), _NO_FOLLOW, _BIRTH, found) != 0:
        return None
    mask = int.from_bytes(found.raw[_MASK_AT : _MASK_AT + 4], sys.byteorder)
    seconds = int.from_bytes(found.raw[_SECONDS_AT : _SECONDS_AT + 8], sys.byteorder, signed=True)
    nanoseconds = int.from_bytes(found.raw[_SECONDS_AT + 8 : _SECONDS_AT + 12], sys.byteorder)
    return seconds * 1_000_000_000 + nanoseconds if mask & _BIRTH else None


def _kind_of(path: Path) -> int | None:
    """The kind of a file's file system, as statfs tells it; None if it does not."""
    device = path.lstat().st_dev
    if device not in _kinds:
        found = ctypes.create_string_buffer(_SIZE)
        asked = path.parent if os.path.islink(path) else path  # noqa: PTH114 - it would be followed
        if ctypes.CDLL(None).statfs(os.fsencode(asked), found) != 0:
            return None
        _kinds[device] = int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)
    return _kinds[device]


@functools.cache
def _statx() -> Any:  # noqa: ANN401 - a function of the C library
    """None where there is none: not on Linux, or in an old library."""
    return getattr(ctypes.CDLL(None), "statx", None)
