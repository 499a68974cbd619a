"""The runs that go on beside one: what those of its study or in its working folder make is none of the user's."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsopt.launch.maker import from_here
from dsopt.launch.processes import run_dirs_here
from dsopt.protocol.private import append_private
from dsopt.protocol.run_dir import RunDir

_SILENT_NS: Final = 60_000_000_000  # a run that has told nothing for so long has ended, and is not undone


def began_ns(run_dir: RunDir, cwd: Path, longest_seconds: float) -> int:
    """When the first of the runs began that go on now, this one included: nanoseconds by the file system's clock.

    That is those of its study and in its working folder. It also notes with each of two runs of unlike studies that the
    other goes on, for `runs_beside`: wherever they work, they may move the same files.

    Args:
        run_dir: of a run that is about to begin.
        cwd: its working folder.
        longest_seconds: a run takes no longer.
    """
    began = [run_dir.mark.stat().st_mtime_ns]
    now, working, living = time.time_ns(), Path(os.path.realpath(cwd)), set(run_dirs_here())
    alive, in_it = {path for path, _ in living}, {path for path, folder in living if folder == working}
    for other in (*young_in(run_dir.path.parent, time.time() - longest_seconds), *map(RunDir, alive)):
        with contextlib.suppress(OSError):
            if other.may_go_on and (other.path in alive or other.last_sign_ns() > now - _SILENT_NS):
                is_sibling, other_began = other.path.parent == run_dir.path.parent, other.mark.stat().st_mtime_ns
                if is_sibling or other.path in in_it:
                    began.append(other_began)
                if not is_sibling:
                    meet(run_dir, other)
    return min(began)


def meet(run_dir: RunDir, other: RunDir) -> None:
    """Notes with each of two runs that the other goes on."""
    for one, beside in ((run_dir, other), (other, run_dir)):
        with append_private(one.beside) as lines:
            lines.write(os.fsencode(beside.path) + b"\n")


def runs_beside(run_dir: RunDir) -> Iterator[RunDir]:
    """The other runs in the same results folder, and those of other studies that went on beside it."""
    paths = [*run_dir.path.parent.iterdir()]
    with contextlib.suppress(OSError):
        paths += (Path(os.fsdecode(line)) for line in run_dir.beside.read_bytes().split(b"\n") if line)
    yield from (RunDir(path) for path in dict.fromkeys(paths) if path != run_dir.path)


def went_on_beside(run_dir: RunDir) -> Iterator[RunDir]:
    """Those of them that have told something since this one began."""
    began_ns = run_dir.mark.stat().st_mtime_ns
    for other in runs_beside(run_dir):
        with contextlib.suppress(OSError):
            if any(path.stat().st_mtime_ns >= began_ns for path in other.all_events()):
                yield from_here(other)


def young_in(results: Path, since: float) -> Iterator[RunDir]:
    """The runs in a results folder whose files were made since then, in seconds since the epoch; there may be many.

    Raises:
        OSError: there is no such folder.
    """
    for folder in os.scandir(results):
        with contextlib.suppress(OSError):
            if folder.is_dir(follow_symlinks=False) and folder.stat().st_mtime >= since:
                yield RunDir(Path(folder.path))
