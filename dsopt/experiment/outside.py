"""Finds what a run leaves outside its own folder: checkpoints that a script saves where nobody told it to."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from dsopt.protocol.checkpoint_names import FILE, FOLDER

_DEPTH: Final = 3
_MOST: Final = 20_000  # entries to look at: not all of a folder of data

Traces = Mapping[Path, int]


def traces(folder: Path, passed_over: Collection[Path]) -> Traces:
    """What looks like a checkpoint in a folder, each with what changes with it.

    That is a file's time of last change in nanoseconds, and of a folder, what is in it: its own time also changes with
    what has come and gone again.

    Args:
        folder: the working folder of the runs.
        passed_over: folders in it to skip; hidden ones are always skipped.
    """
    found: dict[Path, int] = {}
    left = _MOST
    pending = [(folder, 1)]
    while pending and left > 0:
        here, depth = pending.pop()
        try:
            entries = list(os.scandir(here))
        except OSError:
            continue
        for entry in entries:
            left -= 1
            path = Path(entry.path)
            if entry.name.startswith(".") or path in passed_over:
                continue
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
                pattern = FOLDER if is_folder else FILE
                if pattern.fullmatch(entry.name):
                    found[path] = _entries(path) if is_folder else entry.stat().st_mtime_ns
            except OSError:  # it is gone already
                continue
            if is_folder and depth < _DEPTH:
                pending.append((path, depth + 1))
    return found


def _entries(folder: Path) -> int:
    """A number that tells what is in a folder, by names and numbers."""
    with os.scandir(folder) as entries:
        return hash(frozenset((entry.name, entry.inode()) for entry in entries))


def new_traces(before: Traces, after: Traces) -> list[Path]:
    """What appeared, changed or disappeared between two looks; it does not list files in a folder that it lists."""
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return sorted(path for path in changed if not changed & set(path.parents))
