"""Files that a person names to write to: what is there already stays, unless it is to be replaced."""

import contextlib
import os
import shutil
import uuid
from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.protocol.private import FILE_MODE


def refuse_existing(path: Path, *, example: str, force: bool) -> None:
    """Refuses to write over what is there.

    Args:
        path: the file.
        example: a name for one, such as `runs.csv`.
        force: whether a file is to be replaced.

    Raises:
        DsoptError: it is a folder, a pipe or a device, or exists without `force`.
    """
    if path.is_dir():
        raise DsoptError(f"{path}: is a folder. Name a file in it, such as {path / example}.")
    if path.exists() and not path.is_file():
        raise DsoptError(f"{path}: is a pipe or a device. Name a file.")
    if not force and (path.exists() or path.is_symlink()):
        raise DsoptError(f"{path}: exists. Name another file, or replace it with --force (in Python: force=True).")


def write_whole(path: Path, content: bytes, *, example: str, force: bool) -> None:
    """Writes a file whole or not at all. Only its owner can read it; one that is replaced keeps its permissions.

    Raises:
        DsoptError: it cannot be written, or `refuse_existing` refuses it.
    """
    refuse_existing(path, example=example, force=force)
    target = Path(os.path.realpath(path))  # a link stays a link
    part = target.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, FILE_MODE)) as file:
            file.write(content)
        if target.exists():
            shutil.copymode(target, part)
        refuse_existing(path, example=example, force=force)  # whatever came meanwhile
        part.replace(target)
    except OSError as error:
        raise DsoptError(f"{path}: cannot be written: {error.strerror}.") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
