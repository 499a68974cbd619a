"""Where the pages of a storage are served on this machine, noted by the server for those who look for them."""

import contextlib
import hashlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from dsopt.api.storage import shown_storage
from dsopt.protocol.private import make_private, write_private
from dsopt.study.cache_folder import cache_folder

_HERE: Final = socket.gethostname()  # hosts may share a home


@contextlib.contextmanager
def noted_address(url: str, storage: str | None) -> Iterator[None]:
    """Notes an address, without its token, while the block runs. Where that cannot be noted, nobody finds it."""
    folder = _notes(storage)
    if folder is None:
        yield
        return
    path = folder / f"{_HERE}-{os.getpid()}.json"  # each server has its own
    with contextlib.suppress(OSError):
        make_private(folder)
        for other in folder.glob(f"{_HERE}-*.json"):
            if not psutil.pid_exists(int(other.stem.rpartition("-")[2])):  # it was killed
                other.unlink()
        write_private(path, json.dumps({"url": url.partition("?")[0], "pid": os.getpid()}))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def page_of(study: str, storage: str | None) -> str | None:
    """The address of a study's page, if a server of this machine serves the storage."""
    folder = _notes(storage)
    for path in sorted(folder.glob(f"{_HERE}-*.json")) if folder is not None else ():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            noted = json.loads(path.read_text("utf-8"))
            if psutil.pid_exists(int(noted["pid"])):
                return f"{noted['url']}study/{study}"
    return None


def _notes(storage: str | None) -> Path | None:
    """The folder of the notes of a storage; None for a user without a home."""
    mark = hashlib.sha256(str(shown_storage(storage)).encode()).hexdigest()[:24]
    try:
        return cache_folder() / "pages" / mark
    except RuntimeError:
        return None
