"""Undoes what a run's script has done to the user's files: puts back what it removed, replaced or moved."""

import contextlib
import os
import shutil
import uuid
from pathlib import Path

from dsopt.launch.told import told_here
from dsopt.protocol.events import Moved, moved_file
from dsopt.protocol.run_dir import ASIDE, RunDir


def put_back(run_dir: RunDir) -> None:
    """Moves files and folders back to where they were before a run, the last moved first.

    Its processes are gone. What has come in their place goes to the run's own folder.
    """
    for event in sorted(told_here(run_dir, Moved), key=lambda event: event.time, reverse=True):
        with contextlib.suppress(OSError):
            _undo(event, run_dir)


def _undo(event: Moved, run_dir: RunDir) -> None:
    origin, now = Path(event.path), Path(event.to)
    if moved_file(event.rank, origin, now, os.lstat(now), event.time) != event:
        return  # somebody has moved it since, or put something else there
    if os.path.lexists(origin):
        replaced = run_dir.path / "replaced"
        replaced.mkdir(mode=0o700, exist_ok=True)
        shutil.move(origin, replaced / f"{uuid.uuid4().hex[:8]}-{origin.name}")
    origin.parent.mkdir(parents=True, exist_ok=True)
    now.rename(origin)
    if now.parent.name.endswith(ASIDE):
        with contextlib.suppress(OSError):
            now.parent.rmdir()  # if nothing else is in it
