"""The folder that a function would save to: a script may write beside what it believes to have saved there."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dsopt.probe.places import is_path, resolved

_NAMES: Final = ("save_dir", "output_dir", "checkpoint_id")  # DeepSpeed's, Accelerate's and the Trainer's, PyTorch's


def saved_folder(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Path | None:
    """Where it would save to, or None if its arguments do not tell.

    DeepSpeed's `save_checkpoint` saves to a folder with the tag's name in that, by default `global_step` and the step.
    """
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return None
    folder = next((given[name] for name in _NAMES if is_path(given.get(name))), None)
    if folder is None:
        return None
    if "tag" not in inspect.signature(function).parameters:
        return resolved(folder)
    tag = given.get("tag") or f"global_step{getattr(args[0], 'global_steps', 0)}"
    return resolved(folder) / str(tag)
