"""Removes what a run has saved: the next one, and the training itself, must not go on from an experiment's weights."""

import contextlib
import os
import stat
from pathlib import Path

from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import Saved
from dsopt.protocol.run_dir import RunDir


def remove_saved(run_dir: RunDir) -> None:
    """Removes the files that a run whose processes are gone has made by functions that save, if they are still those.

    A file of the same name that somebody else has put there is another one, and stays.
    """
    reader = EventReader(run_dir)
    while events := [*reader.read()]:
        for event in events:
            if isinstance(event, Saved):
                with contextlib.suppress(OSError):
                    _remove(event)


def _remove(saved: Saved) -> None:
    found = os.lstat(saved.path)
    if stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) == (saved.device, saved.inode):
        Path(saved.path).unlink()
