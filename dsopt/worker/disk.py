"""Whether a disk is full: that is no candidate's fault, and a worker waits until there is room again."""

import errno
import os
from pathlib import Path
from typing import Final

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_ROOM_BYTES: Final = 16 << 20  # logs, events and figures of a run


def full_disk(folder: Path, error: OSError | None = None) -> Path | None:
    """The folder, if its disk is full: an error says so, or there is no room for the files of a run."""
    return folder if (error is not None and error.errno in _FULL) or not has_room(folder) else None


def has_room(folder: Path) -> bool:
    """Whether the files of a run fit on the disk of a folder."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        found = os.statvfs(folder)
    except OSError:
        return True  # whatever is wrong, it is not this
    return found.f_bavail * found.f_frsize >= _ROOM_BYTES


def no_room(folder: Path) -> str:
    """What watchers are told when a worker waits for room."""
    return f"the disk of {folder} is full. Make room on it"
