"""Folders where dsopt puts something of its own on the file system of a path: only there can it be renamed to."""

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from dsopt.probe.places import HIDDEN_ASIDE
from dsopt.protocol.whose import is_users


def own_folders(path: Path, aside: Path, working: Path) -> tuple[Path, ...]:
    """Those that may be on the file system of a path, best first: the run's own, or hidden ones beside the user's."""
    # far above, where a script that empties its own folder does not come by
    ours = [place for place in reversed(path.parents[:-1]) if os.access(place, os.W_OK, effective_ids=True)]
    above = (working, *ours, path.parent.parent, path.parent)
    return aside, *(place / HIDDEN_ASIDE for place in above)


def new_room(path: Path, aside: Path, working: Path) -> Path | None:
    """A new folder in one of these, from where a file can be renamed to a path; None: there is none."""
    mount = _mount_of(path.parent)
    for folder in own_folders(path, aside, working) if mount is not None else ():
        if _mount_of(folder.parent) == mount:
            with contextlib.suppress(OSError), made(folder):
                room = folder / uuid.uuid4().hex
                room.mkdir(mode=0o700)
                return room
    return None


@contextlib.contextmanager
def made(folder: Path) -> Iterator[None]:
    """Makes a folder for something of dsopt's; it goes if nothing comes of that.

    Raises:
        OSError: it cannot be made, or is another user's, in a folder that all share.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if not is_users(folder.stat().st_uid, folder):
            raise PermissionError(errno.EPERM, "it is another user's", str(folder))
        yield
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()  # unless it has others
        raise


def device_of(folder: Path) -> int | None:
    """The device of a folder's file system, if it is there and open to us."""
    try:
        return folder.stat().st_dev
    except OSError:
        return None


def _mount_of(folder: Path) -> str | None:
    """The mount that a folder is in: two of one disk have one device, and nothing can be renamed between them."""
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        told = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").splitlines()
        return next((line for line in told if line.startswith("mnt_id")), None)
    finally:
        os.close(descriptor)
