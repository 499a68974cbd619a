"""Whether the runs of a script meet in the user's own folder, so that they go one after the other there."""

import contextlib
import os
from pathlib import Path

from dsopt.launch.saved import is_much
from dsopt.launch.told import told
from dsopt.protocol.events import Moved, Saved
from dsopt.protocol.run_dir import RunDir


def saves_in_place(run_dir: RunDir) -> bool:
    """Whether a run has saved outside of its own folder, or taken away, replaced or changed checkpoints of the user's.

    Its processes are gone, and nothing is undone yet. A run beside it would save to the same files. Small files do not
    count, such as logs.
    """
    if any(not event.is_plain and os.path.isfile(event.path) for event in told(run_dir, Saved)):  # noqa: PTH113
        return True
    return any(_is_much(Path(event.to)) for event in told(run_dir, Moved))


def _is_much(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.is_dir() or is_much(path)
    return False
