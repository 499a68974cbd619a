"""Whether a disk takes files: if not, that is no candidate's fault, and a worker waits until it does again."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dsopt.worker.happenings import Happening, WorkerPaused, WorkerWentOn

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
# or read-only, broken, or a network file system whose server has forgotten the file
_UNUSABLE: Final = (*_FULL, errno.EROFS, errno.EIO, errno.ESTALE)
_ERROR: Final = re.compile(r"\[Errno (\d+)\][^'\"]*['\"]([^'\"]+)['\"]")  # an OSError of a file, as Python words it
_ROOM_BYTES: Final = 16 << 20  # logs, events and figures of a run


class Room:
    """Room for the results of a study, which a worker waits for.

    Args:
        folder: of the results.
        tell: told when the worker begins to wait, and when it goes on.
    """

    def __init__(self, folder: Path, tell: Callable[[Happening], None]) -> None:
        self._folder = folder
        self._tell = tell
        self._is_waiting = False

    def is_there(self) -> bool:
        """Whether the disk takes files now."""
        why = unusable(self._folder)
        if why is None:
            if self._is_waiting:
                self._tell(WorkerWentOn())
        elif not self._is_waiting:
            self._tell(WorkerPaused(why=why))
        self._is_waiting = why is not None
        return why is None


def unusable(folder: Path, error: OSError | None = None, said: str = "") -> str | None:
    """Why the disk of a folder takes no files; None: nothing is known to be wrong with it.

    Args:
        folder: on the disk.
        error: what writing to it has raised.
        said: what a run that failed has said. It counts if it names such an error of a file in the folder.
    """
    numbers = [error.errno] if error is not None else []
    numbers += [int(number) for number, path in _ERROR.findall(said) if path.startswith(f"{folder}/")]
    number = next((number for number in numbers if number in _UNUSABLE), None) or _trouble(folder)
    if number in _FULL:
        return f"the disk of {folder} is full. Make room on it"
    if number is not None:
        return f"the disk of {folder} cannot be written to: {os.strerror(number).lower()}. Mend it"
    return None


def _trouble(folder: Path) -> int | None:
    """The number of the error that writing to a folder would raise, as far as its disk says so."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        found = os.statvfs(folder)
    except OSError:
        return None  # whatever is wrong, it is not this
    if found.f_flag & os.ST_RDONLY:
        return errno.EROFS
    return None if found.f_bavail * found.f_frsize >= _ROOM_BYTES else errno.ENOSPC
