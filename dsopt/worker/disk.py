"""Whether a disk takes files: if not, that is no candidate's fault, and a worker waits until it does again."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dsopt.launch.nvme import ROOM_BYTES
from dsopt.launch.passing import FULL, UNUSABLE
from dsopt.worker.happenings import Happening, WorkerPaused, WorkerWentOn

_ERROR: Final = re.compile(r"\[Errno (\d+)\][^'\"]*['\"]([^'\"]+)['\"]")  # an OSError of a file, as Python words it
_ROOM_BYTES: Final = 16 << 20  # logs, events and figures of a run
_ROOM_FILES: Final = 100


class Room:
    """Room for the results of a study, and on disks that its runs offload to, which a worker waits for.

    Args:
        folder: of the results.
        tell: told when the worker begins to wait, and when it goes on.
    """

    def __init__(self, folder: Path, tell: Callable[[Happening], None]) -> None:
        self._folder = folder
        self._lacking: Path | None = None
        self._tell = tell
        self._is_waiting = False

    def waits_for(self, folder: Path) -> None:
        """Waits for a disk to offload to, too, until it has room."""
        self._lacking = folder

    def is_there(self) -> bool:
        """Whether the disks take files now."""
        why = unusable(self._folder)
        if why is None and self._lacking is not None:
            why = unusable(self._lacking, room_bytes=ROOM_BYTES)
        if why is None:
            self._lacking = None
            if self._is_waiting:
                self._tell(WorkerWentOn())
        elif not self._is_waiting:
            self._tell(WorkerPaused(why=why))
        self._is_waiting = why is not None
        return why is None


def unusable(folder: Path, error: OSError | None = None, said: str = "", room_bytes: int = _ROOM_BYTES) -> str | None:
    """Why the disk of a folder takes no files; None: nothing is known to be wrong with it.

    Args:
        folder: on the disk.
        error: what writing to it has raised.
        said: what a run that failed has said. It counts if it names such an error of a file in the folder.
        room_bytes: what has to be free.
    """
    numbers = [error.errno] if error is not None else []
    numbers += [int(number) for number, path in _ERROR.findall(said) if path.startswith(f"{folder}/")]
    found = _state(folder)
    number = next((number for number in numbers if number in UNUSABLE), None) or _trouble(found, room_bytes)
    if number in FULL:
        if isinstance(found, os.statvfs_result) and _lacks_inodes(found):
            return f"the disk of {folder} takes no more files, however much room it has. Remove some of its files"
        return f"the disk of {folder} is full. Make room on it, at least {room_bytes >> 20} MiB"
    if number is not None:
        return f"the disk of {folder} cannot be written to: {os.strerror(number).lower()}. Mend it"
    return None


def _state(folder: Path) -> os.statvfs_result | int | None:
    """What a disk says of itself, or the number of the error that it answers with; None: it says nothing."""
    for path in (folder, *folder.parents):
        try:
            return os.statvfs(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return error.errno if error.errno in UNUSABLE else None  # whatever else is wrong, it is not this
    return None


def _trouble(disk: os.statvfs_result | int | None, room_bytes: int) -> int | None:
    """The number of the error that writing to a disk would raise, as far as it says so."""
    if disk is None or isinstance(disk, int):
        return disk
    if disk.f_flag & os.ST_RDONLY:
        return errno.EROFS
    is_full = disk.f_blocks > 0 and disk.f_bavail * disk.f_frsize < room_bytes  # some file systems do not say it
    is_full |= _lacks_inodes(disk)
    return errno.ENOSPC if is_full else None


def _lacks_inodes(disk: os.statvfs_result) -> bool:
    return disk.f_files > 0 and disk.f_favail < _ROOM_FILES  # some file systems have no fixed number of them
