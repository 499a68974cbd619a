"""The keys of this node: with them, studies are signed, and only signed ones are read."""

import hashlib
import json
import os
import re
import secrets
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.study.secrets import KEYS_VARIABLE

SIGNING_VARIABLE: Final = "DSOPT_SIGNING_KEY"
_SUFFIX: Final = ".key"
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of this node.

    Attributes:
        name: of its file.
        path: its file.
        created_at: seconds since the epoch.
        secret: never shown.
    """

    name: str
    path: Path
    created_at: float
    secret: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """What names the key without telling it."""
        return hashlib.sha256(b"dsopt key fingerprint\0" + self.secret).hexdigest()[:16]


def keys_folder() -> Path:
    """The folder of this node's keys: DSOPT_KEYS, else `dsopt/keys` in the user's configuration folder."""
    chosen = os.environ.get(KEYS_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "dsopt" / "keys"


def create_key(name: str | None = None) -> Key:
    """Makes a key that only this user can read; None: named after the time.

    Raises:
        DsoptError: the name is not valid or taken, or others can write to the folder.
    """
    folder, now = keys_folder(), time.time()
    name = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) if name is None else name
    if not re.fullmatch(_NAME, name):
        raise DsoptError(f"--name: {name!r}. Expected up to 64 letters, digits, dots, underscores and hyphens.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(folder, folder=True)
    path = folder / f"{name}{_SUFFIX}"
    content = json.dumps({"dsopt_key": 1, "created_at": now, "secret": secrets.token_hex(_BYTES)})
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise DsoptError(f"--name: there is a key '{name}' already: {path}. Choose another name.") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content + "\n")
    return _read(path)


def trusted_keys() -> list[Key]:
    """The keys of this node, oldest first.

    Raises:
        DsoptError: one of them cannot be read, or is open to others; or whether there are any cannot be known. A node
            without keys accepts every study, so nothing else must look like one.
    """
    folder = keys_folder()
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(_SUFFIX))
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not os.environ.get(KEYS_VARIABLE) and not folder.is_symlink():
            return []
        raise DsoptError(
            f"the keys of this node: {folder}: {error.strerror}. Correct the folder, name another one in "
            f"{KEYS_VARIABLE}, or create one with: dsopt key create"
        ) from None
    if paths:
        _check_private(folder, folder=True)
    elif os.environ.get(KEYS_VARIABLE):
        raise DsoptError(
            f"{KEYS_VARIABLE}: {folder} has no key (a file NAME{_SUFFIX}). Create one with: dsopt key create. "
            f"To accept studies that nobody has signed, unset {KEYS_VARIABLE}."
        )
    return sorted(map(_read, paths), key=lambda key: (key.created_at, key.name))


def signing_key(keys: list[Key]) -> Key | None:
    """The key that signs: the one that DSOPT_SIGNING_KEY names, else the newest; None without keys.

    Raises:
        DsoptError: there is no key of that name.
    """
    chosen = os.environ.get(SIGNING_VARIABLE)
    if not chosen:
        return keys[-1] if keys else None
    found = next((key for key in keys if chosen in (key.name, key.fingerprint)), None)
    if found is None:
        raise DsoptError(f"{SIGNING_VARIABLE}: there is no key '{chosen}' in {keys_folder()}. See: dsopt key list")
    return found


def _read(path: Path) -> Key:
    _check_private(path, folder=False)
    if not path.is_file():
        raise DsoptError(f"key {path}: is not a file. Remove it, or copy the key again.")
    try:
        content = json.loads(path.read_text("utf-8"))
        secret, created_at = bytes.fromhex(content["secret"]), float(content["created_at"])
        is_whole = content["dsopt_key"] == 1 and len(secret) == _BYTES
    except OSError as error:
        raise DsoptError(f"key {path}: cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise DsoptError(f"key {path}: is not a key of dsopt, or is damaged. Copy it again, or remove it.")
    return Key(name=path.name.removesuffix(_SUFFIX), path=path, created_at=created_at, secret=secret)


def _check_private(path: Path, *, folder: bool) -> None:
    """Refuses a key that others can read or replace, as ssh does."""
    try:
        found = path.stat()
    except OSError as error:
        raise DsoptError(f"key {path}: cannot be read: {error.strerror}.") from None
    open_to_others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH if folder else stat.S_IRWXG | stat.S_IRWXO)
    if open_to_others:
        what, mode = ("write to", "go-w") if folder else ("use", "600")
        raise DsoptError(f"key {path}: other users can {what} it. Correct that with: chmod {mode} '{path}'")
    if found.st_uid not in (os.geteuid(), 0):
        raise DsoptError(f"key {path}: belongs to another user. Make your own, or copy it as this user.")
