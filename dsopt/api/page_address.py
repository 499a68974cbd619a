"""Where the pages of a storage are served on this machine, noted by the server for those who look for them."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from dsopt.api.storage import shown_storage
from dsopt.protocol.private import make_private, write_private
from dsopt.study.cache_folder import cache_folder


@contextlib.contextmanager
def noted_address(url: str, storage: str | None) -> Iterator[None]:
    """Notes an address, without its token, while the block runs. Where that cannot be noted, nobody finds it."""
    path = _note(storage)
    if path is None:
        yield
        return
    content = json.dumps({"url": url.partition("?")[0], "pid": os.getpid()})
    with contextlib.suppress(OSError):
        make_private(path.parent, exist_ok=True)
        write_private(path, content)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if path.read_text("utf-8") == content:  # not that of another server
                path.unlink()


def page_of(study: str, storage: str | None) -> str | None:
    """The address of a study's page, if a server of this machine serves the storage."""
    try:
        path = _note(storage)
        if path is None:
            return None
        noted = json.loads(path.read_text("utf-8"))
        is_there = psutil.pid_exists(int(noted["pid"]))
        return f"{noted['url']}study/{study}" if is_there else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _note(storage: str | None) -> Path | None:
    """The file of that note; None for a user without a home."""
    mark = hashlib.sha256(str(shown_storage(storage)).encode()).hexdigest()[:24]
    try:
        return cache_folder() / "pages" / f"{mark}.json"
    except RuntimeError:
        return None
