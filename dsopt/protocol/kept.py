"""What runs on this machine have done with the user's files, whatever their study: so that none takes one for its own.

It is kept with the machine's locks, until the machine is restarted, and read only where nobody else can write. Whoever
calls these functions has the lock (`protocol/alone.py`). Where nothing can be written there, runs of several studies do
not know of each other.
"""

import contextlib
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any, Final

from dsopt.protocol.machine_folder import is_ours, machine_folder

_FILE: Final = "files.json"
_MOST: Final = 10_000  # paths of a kind
_open, _replace, _unlink = os.open, os.replace, os.unlink  # as they are before a rank wraps them
_COPIES, _RETURNED = "copies", "returned"


def copy_of(path: Path) -> Path | None:
    """A copy of what the user's file at a path held, which a run has made that is not undone."""
    copy, inode = _read().get(_COPIES, {}).get(str(path), ("", ""))
    return Path(copy) if copy and Path(copy).is_file() and inode == _inode(path) else None


def note_copy(path: Path, copy: Path) -> None:
    """Notes that a run has made one, and is about to write to the file."""
    _note(_COPIES, path, (str(copy), _inode(path)))


def is_returned(path: Path, since_ns: int) -> bool:
    """Whether the file at a path is the user's, which another run has put back there since then."""
    inode, returned_ns = _read().get(_RETURNED, {}).get(str(path), ("", 0))
    return bool(inode) and inode == _inode(path) and returned_ns > since_ns


def note_returned(path: Path) -> None:
    """Notes that it was put back."""
    _note(_RETURNED, path, (_inode(path), time.time_ns()))


def _inode(path: Path) -> str:
    with contextlib.suppress(OSError):
        return str(path.lstat().st_ino)
    return ""


def _read() -> dict[str, Any]:
    try:
        found = json.loads((machine_folder() / _FILE).read_bytes()) if is_ours(machine_folder()) else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _note(kind: str, path: Path, value: object) -> None:
    content = _read()
    known = {name: old for name, old in content.get(kind, {}).items() if name != str(path)} | {str(path): value}
    content[kind] = dict(list(known.items())[-_MOST:])
    new, text = machine_folder() / f"{uuid.uuid4().hex}.tmp", json.dumps(content).encode("ascii")
    with contextlib.suppress(OSError):
        descriptor = _open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            if os.write(descriptor, text) == len(text):  # else what is known already is worth more
                _replace(new, machine_folder() / _FILE)
        finally:
            os.close(descriptor)
    with contextlib.suppress(OSError):
        _unlink(new)  # unless it is in its place
