"""A folder of the user's that a script removes, and that cannot be taken aside as a whole, such as a mount."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from dsopt.probe.places import HIDDEN_ASIDE, is_aside, is_folder


def take_parts(folder: Path, take: Callable[[Path], object], is_lost: Callable[[Path], bool]) -> None:
    """Takes aside what can be of what is in it and would be lost."""
    with contextlib.suppress(OSError):
        for entry in [*folder.iterdir()] if is_folder(folder) else ():
            if not is_aside(entry) and is_lost(entry):
                try:
                    take(entry)
                except OSError:
                    take_parts(entry, take, is_lost)


def holds_users(place: Path, is_lost: Callable[[Path], bool]) -> bool:
    """Whether something of the user's is there still, or is kept there: to remove the place would destroy it."""
    return is_lost(place) or (is_folder(place) and next(place.rglob(HIDDEN_ASIDE), None) is not None)
