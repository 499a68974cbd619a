"""What a run leaves outside of its own folder: checkpoints that a script saves where nobody told it to."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

# what a checkpoint's folder or file is usually called
_FOLDER: Final = re.compile(r"(checkpoint|ckpt|global_?step|epoch|step)[-_.]?\d*s?", re.IGNORECASE)
_FILE: Final = re.compile(r"latest|.*\.(pt|pth|ckpt|bin|safetensors|distcp|npz|h5|msgpack)", re.IGNORECASE)
_DEPTH: Final = 3
_MOST: Final = 20_000  # entries looked at: a folder of data is not gone through

Traces = Mapping[Path, int]


def traces(folder: Path, passed_over: Collection[Path]) -> Traces:
    """What looks like a checkpoint in a folder, each with the time of its last change in nanoseconds.

    Args:
        folder: the working folder of the runs.
        passed_over: folders in it that are not looked into; hidden ones never are.
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
    """What came, changed or went between two looks; what lies in such a folder is not named beside it."""
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return sorted(path for path in changed if not changed & set(path.parents))
