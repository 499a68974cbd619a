"""The control groups of a process, by which Linux bounds its memory."""

import os
from collections.abc import Iterator
from pathlib import Path


def memory_groups(listing: Path, root: Path) -> Iterator[Path]:
    """The folders of the control groups that bound a process's memory, the innermost first.

    Args:
        listing: what the kernel says of the process's groups.
        root: where their file systems are mounted.
    """
    for line in listing.read_text("utf-8").splitlines() if listing.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder = root / "memory" if controllers else root
        group = folder / os.path.normpath(path).strip("/")
        yield from (around for around in (group, *group.parents) if around.is_relative_to(folder))
