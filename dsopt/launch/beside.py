"""The runs that go on beside one, of its study or in its working folder: what they make is none of the user's."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsopt.launch.processes import run_dirs_in
from dsopt.protocol.private import append_private
from dsopt.protocol.run_dir import RunDir

_SILENT_NS: Final = 60_000_000_000  # a run that has told nothing for so long has ended, and is not undone


def began_ns(run_dir: RunDir, cwd: Path, longest_seconds: float) -> int:
    """When the first of the runs began that go on now, this one included: nanoseconds by the file system's clock.

    It also notes with each of two runs of unlike studies that the other goes on, for `runs_beside`.

    Args:
        run_dir: of a run that is about to begin.
        cwd: its working folder, where runs of other studies may go on, too.
        longest_seconds: a run takes no longer.
    """
    began = [run_dir.mark.stat().st_mtime_ns]
    now, here = time.time_ns(), set(run_dirs_in(cwd))
    for other in (*_siblings(run_dir, time.time() - longest_seconds), *map(RunDir, here)):
        with contextlib.suppress(OSError):
            if other.may_go_on and (other.path in here or other.last_sign_ns() > now - _SILENT_NS):
                began.append(other.mark.stat().st_mtime_ns)
                if other.path.parent != run_dir.path.parent:
                    meet(run_dir, other)
    return min(began)


def meet(run_dir: RunDir, other: RunDir) -> None:
    """Notes with each of two runs that the other goes on in the same working folder."""
    for one, beside in ((run_dir, other), (other, run_dir)):
        with append_private(one.beside) as lines:
            lines.write(os.fsencode(beside.path) + b"\n")


def runs_beside(run_dir: RunDir) -> Iterator[RunDir]:
    """The other runs in the same results folder, and those of other studies that went on in its working folder."""
    paths = [*run_dir.path.parent.iterdir()]
    with contextlib.suppress(OSError):
        paths += (Path(os.fsdecode(line)) for line in run_dir.beside.read_bytes().split(b"\n") if line)
    yield from (RunDir(path) for path in dict.fromkeys(paths) if path != run_dir.path)


def _siblings(run_dir: RunDir, since: float) -> Iterator[RunDir]:
    """The runs in the same results folder whose files were made since then, in seconds since the epoch."""
    for folder in os.scandir(run_dir.path.parent):
        with contextlib.suppress(OSError):
            if folder.is_dir(follow_symlinks=False) and folder.stat().st_mtime >= since:
                yield RunDir(Path(folder.path))
