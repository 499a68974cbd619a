"""Watches what a test does with hostile input: it may not hang, start a program, or write outside of its folder."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

_HANGS_SECONDS: Final = 60  # what each of these does takes milliseconds
_WRITES: Final = (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_APPEND)
_CHANGES: Final = (
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
)  # fmt: skip
_PROGRAMS: Final = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")

_folders: list[Path] = []  # of the tests that are watched now
_seen: list[str] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _folders:
        return
    if event in _PROGRAMS:
        _seen.append(f"{event} {args[0] if args else ''}")
    elif event in _CHANGES or (
        event == "open" and isinstance(args[2], int) and any(args[2] & flag for flag in _WRITES)
    ):
        path = args[0]
        if isinstance(path, str | bytes | os.PathLike) and not _may_write(Path(os.path.abspath(os.fsdecode(path)))):
            _seen.append(f"{event} {path!r}")


def _may_write(path: Path) -> bool:
    """Python itself keeps what it has compiled."""
    return path.is_relative_to(_folders[-1]) or path.parent.name == "__pycache__" or str(path) == os.devnull


sys.addaudithook(_audit)  # for as long as Python runs


def _hangs(_signal: int, _frame: FrameType | None) -> None:
    raise AssertionError(f"it does not end within {_HANGS_SECONDS} seconds")


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Fails if what is done meanwhile hangs, starts a program, or writes outside of a folder."""
    before = signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(_HANGS_SECONDS)
    _folders.append(folder)
    _seen.clear()
    try:
        yield
    finally:
        _folders.pop()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if _seen:
        raise AssertionError(", ".join(_seen))
