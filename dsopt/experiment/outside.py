"""Finds what a run leaves outside its own folder: checkpoints that a script saves where nobody told it to."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

# usual names of checkpoint folders and files
_FOLDER: Final = re.compile(r"(checkpoint|ckpt|global_?step|epoch|step)[-_.]?\d*s?", re.IGNORECASE)
_FILE: Final = re.compile(r"latest|.*\.(pt|pth|ckpt|bin|safetensors|distcp|npz|h5|msgpack)", re.IGNORECASE)
_DEPTH: Final = 3
_MOST: Final = 20_000  # entries to look at: not all of a folder of data

Traces = Mapping[Path, int]


def traces(folder: Path, passed_over: Collection[Path]) -> Traces:
    """What looks like a checkpoint in a folder, each with the time of its last change in nanoseconds.

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
                pattern = _FOLDER if is_folder else _FILE
                if pattern.fullmatch(entry.name):
                    found[path] = entry.stat().st_mtime_ns
            except OSError:  # it is gone already
                continue
            if is_folder and depth < _DEPTH:
                pending.append((path, depth + 1))
    return found


def new_traces(before: Traces, after: Traces) -> list[Path]:
    """What appeared, changed or disappeared between two looks; it does not list files in a folder that it lists."""
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return sorted(path for path in changed if not changed & set(path.parents))
