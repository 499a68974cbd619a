"""The folder that a function would save to: a script may write beside what it believes to have saved there."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dsopt.probe.places import is_path, resolved

# DeepSpeed's, Accelerate's and the Trainer's, PyTorch's
_NAMES: Final = ("save_dir", "output_dir", "save_directory", "checkpoint_id")


def saved_folder(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Path | None:
    """Where it would save to, or None if its arguments do not tell.

    DeepSpeed's `save_checkpoint` saves to a folder with the tag's name in that, by default `global_step` and the step.
    """
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return None
    named = [given.get(name) for name in _NAMES]
    named.append(getattr(given.get("storage_writer"), "path", None))
    folder = next(filter(is_path, named), None)
    if folder is None:
        return None
    if "tag" not in inspect.signature(function).parameters:
        return resolved(folder)
    tag = given.get("tag")
    return resolved(folder) / (f"global_step{getattr(args[0], 'global_steps', 0)}" if tag is None else str(tag))
