"""Whether the runs of a script meet in the user's own folder, so that they go one after the other there."""

import contextlib
import os
import tempfile
from pathlib import Path

from dsopt.launch.saved import is_much, weights_in
from dsopt.launch.told import told
from dsopt.protocol.events import Moved, Saved
from dsopt.protocol.run_dir import RunDir


def saves_in_place(run_dir: RunDir, working: Path) -> bool:
    """Whether a run has saved outside of its own folder, or taken away, replaced or changed checkpoints of the user's.

    Its processes are gone, and nothing is undone yet. A run beside it would save to the same files. Small files do not
    count, such as logs, nor does what is in the folder for temporary files: that has another name each time.

    Args:
        run_dir: of the run.
        working: the working folder.
    """
    temporary, own = os.path.realpath(tempfile.gettempdir()), os.path.realpath(working)
    for event in weights_in(told(run_dir, Saved)):
        path = Path(event.path)
        is_temporary = path.is_relative_to(temporary) and not path.is_relative_to(own)
        if not is_temporary and os.path.isfile(path):  # noqa: PTH113 - takes any text
            return True
    return any(_is_much(Path(event.to)) for event in told(run_dir, Moved))


def _is_much(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.is_dir() or is_much(path)
    return False
