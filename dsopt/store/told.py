"""What is said once per node and database, and then remembered."""

import contextlib
import hashlib
import socket

import sqlalchemy as sa

from dsopt.store.keys import trusted_keys
from dsopt.store.url import shown
from dsopt.study.cache_folder import cache_folder


def unsigned_note(engine: sa.Engine) -> str | None:
    """What it means that studies on a shared database are not signed; None: it was said, or does not matter.

    An SQLite file is as safe as its folder, so nothing is said of it.
    """
    if engine.dialect.name == "sqlite" or trusted_keys():
        return None
    if not _is_first(f"{socket.gethostname()} {shown(engine.url)}"):
        return None
    return (
        f"{shown(engine.url)}: whoever can write to this database can make its workers run any command, because this "
        "node has no key. To run only studies that you have signed, use 'dsopt key create' and copy the key to each "
        "node (docs/security.md). dsopt says this once per node and database."
    )


def _is_first(subject: str) -> bool:
    """Whether nobody has asked this here before; notes it. If it cannot be noted, it is said again."""
    mark = hashlib.sha256(subject.encode()).hexdigest()
    with contextlib.suppress(OSError, RuntimeError):
        path = cache_folder() / "told-unsigned"
        if path.exists() and mark in path.read_text("utf-8").split():
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{mark}\n")
    return True
