"""Whose a file is: some mounts show all files as one user's, whoever made them.

The training process imports it, too.
"""

import os
import uuid
from pathlib import Path

_open, _unlink = os.open, os.unlink  # a run's ranks replace them
_shown: dict[int, int] = {}  # by device: whose files are there that this user makes


def is_users(uid: int, folder: Path) -> bool:
    """Whether what shows this owner in a folder may be this user's: it is so shown as what the user makes there.

    Raises:
        OSError: nobody can tell, as on a full disk.
    """
    if uid == os.geteuid():
        return True
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        return False  # a folder of another's
    device = folder.stat().st_dev
    if device not in _shown:
        _shown[device] = _owner_of_new(folder)
    return uid == _shown[device]


def _owner_of_new(folder: Path) -> int:
    path = folder / f".dsopt-{uuid.uuid4().hex}"
    descriptor = _open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        return os.fstat(descriptor).st_uid
    finally:
        os.close(descriptor)
        _unlink(path)
