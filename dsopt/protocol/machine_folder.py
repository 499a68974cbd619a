"""The folder of this user on this machine for locks: of devices, and of who changes the user's files."""

import os
import stat
from pathlib import Path
from typing import Final

FOLDER_VARIABLE: Final = "DSOPT_DEVICE_LOCKS"


def is_ours(folder: Path) -> bool:
    """Whether nobody else can have put something there: another user may have made a folder of that name before."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o022


def is_trusted(folder: Path) -> bool:
    """Whether what is locked there counts: only this user can have put it there, or has named the folder."""
    return FOLDER_VARIABLE in os.environ or is_ours(folder)


def machine_folder() -> Path:
    """Where it is; it may not be there yet."""
    return Path(os.environ.get(FOLDER_VARIABLE) or f"/dev/shm/dsopt-{os.getuid()}")  # noqa: S108 - of this user alone
