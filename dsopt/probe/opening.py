"""What Python's `open` is about to write: text, JSON, what NumPy and pandas save, logs.

An audit hook would see other ways, too, and slow down every `id()`.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_WRITING: Final = frozenset("wax+")
_OPENER_AT: Final = 5  # after file and mode


def written_path(file: Any, mode: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Path | None:  # noqa: ANN401
    """The path of what a call of `open` writes to, links followed; None if it only reads, or nobody can say.

    Args:
        file, mode: its first arguments.
        args, kwargs: the further ones. With an opener of the script's own, a path may be relative to any folder.
    """
    if not isinstance(mode, str) or _WRITING.isdisjoint(mode) or isinstance(file, int):
        return None
    with contextlib.suppress(TypeError, ValueError, OSError):
        name, has_opener = os.fsdecode(file), kwargs.get("opener") is not None or len(args) > _OPENER_AT
        return None if has_opener and not os.path.isabs(name) else Path(os.path.realpath(name))  # noqa: PTH117
    return None
