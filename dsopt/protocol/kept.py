"""What runs on this machine have done with the user's files, whatever their study: so that none takes one for its own.

It is kept with the machine's locks, until the machine is restarted, and read only where nobody else can write: a line
each, of which the last one about a path counts. Whoever calls these functions has the lock (`protocol/alone.py`). Where
nothing can be written there, runs of several studies do not know of each other.
"""

import contextlib
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any, Final

from dsopt.protocol.machine_folder import is_ours, machine_folder

_COPIES: Final = "copies.jsonl"
_RETURNED: Final = "returned.jsonl"
_USERS: Final = "users.jsonl"
_MOST: Final = 10_000  # paths of a kind
_MOST_BYTES: Final = 2**22  # after which what is no longer needed goes
_open, _replace, _unlink = os.open, os.replace, os.unlink  # as they are before a rank wraps them
_Known = dict[str, list[Any]]
_read_before: dict[Path, tuple[int, int, _Known]] = {}  # by file: its number, how much of it is known, and that


def copy_of(path: Path) -> Path | None:
    """A copy of what the user's file at a path held, which a run has made that is not undone."""
    copy, inode = _known(_COPIES).get(str(path), ("", ""))
    return Path(copy) if copy and Path(copy).is_file() and inode == _inode(path) else None


def note_copy(path: Path, copy: Path) -> None:
    """Notes that a run has made one, and is about to write to the file."""
    _note(_COPIES, [str(path), str(copy), _inode(path)])


def is_returned(path: Path, since_ns: int) -> bool:
    """Whether the file at a path is the user's, which another run has put back there since then."""
    inode, returned_ns = _known(_RETURNED).get(str(path), ("", 0))
    return bool(inode) and inode == _inode(path) and returned_ns > since_ns


def note_returned(path: Path) -> None:
    """Notes that it was put back."""
    _note(_RETURNED, [str(path), _inode(path), time.time_ns()])


def has_users() -> bool:
    """Whether any file was noted as the user's."""
    return bool(_known(_USERS))


def is_users(path: Path) -> bool:
    """Whether the file at a path is the user's, whatever its date says since a run has written to it."""
    return _number(path) in _known(_USERS)


def note_users(path: Path) -> None:
    """Notes that it is, before a run writes to it: its date alone would tell its age."""
    _note(_USERS, [_number(path), str(path), time.time_ns()])


def _number(path: Path) -> str:
    with contextlib.suppress(OSError):
        found = path.lstat()
        return f"{found.st_dev}:{found.st_ino}"
    return ""


def _inode(path: Path) -> str:
    with contextlib.suppress(OSError):
        return str(path.lstat().st_ino)
    return ""


def _known(name: str) -> _Known:
    """What the lines of a file say, by path; only what is new of it is read."""
    file = machine_folder() / name
    try:
        found = file.stat() if is_ours(machine_folder()) else None
    except OSError:
        found = None
    if found is None:
        return {}
    number, size, known = _read_before.get(file, (found.st_ino, 0, {}))
    if number != found.st_ino or size > found.st_size:
        size, known = 0, {}
    if size < found.st_size:
        with contextlib.suppress(OSError):
            descriptor = _open(file, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                text = os.pread(descriptor, found.st_size - size, size)
            finally:
                os.close(descriptor)
            whole = text[: text.rfind(b"\n") + 1]
            for line in whole.splitlines():
                _take(line, known)
            size += len(whole)
    _read_before[file] = (found.st_ino, size, known)
    return known


def _take(line: bytes, known: _Known) -> None:
    """Takes a line in; one that was written half, as on a full disk, says nothing."""
    with contextlib.suppress(ValueError, TypeError):
        path, *rest = json.loads(line)
        if isinstance(path, str) and len(rest) == 2:
            known.pop(path, None)
            known[path] = rest


def _note(name: str, value: list[Any]) -> None:
    file = machine_folder() / name
    with contextlib.suppress(OSError):
        descriptor = _open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            # after a line that was written half
            os.write(descriptor, b"\n" + json.dumps(value).encode("ascii") + b"\n")
            is_long = os.fstat(descriptor).st_size > _MOST_BYTES
        finally:
            os.close(descriptor)
        if is_long:
            _shorten(file, _known(name))


def _shorten(file: Path, known: _Known) -> None:
    """Writes what is known anew, without what later lines have replaced."""
    new = file.with_name(f"{uuid.uuid4().hex}.tmp")
    lines, left = list[bytes](), _MOST_BYTES // 2
    for path, rest in [*known.items()][: -_MOST - 1 : -1]:
        line = json.dumps([path, *rest]).encode("ascii") + b"\n"
        left -= len(line)
        if left < 0:
            break
        lines.append(line)
    text = b"".join(reversed(lines))
    try:
        descriptor = _open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            if os.write(descriptor, text) == len(text):  # else what is known already is worth more
                _replace(new, file)
        finally:
            os.close(descriptor)
    finally:
        with contextlib.suppress(OSError):
            _unlink(new)  # unless it is in its place
