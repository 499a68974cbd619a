"""How much memory of its node a rank may use at all."""

import os
from collections.abc import Iterator
from pathlib import Path

from dsopt.protocol.control_groups import memory_groups


def host_memory_bytes() -> int:
    """Memory of this node, or the part of it that a container, a job or a service may use."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([total, *cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def cgroup_limits(listing: Path, root: Path) -> Iterator[int]:
    """The memory limits of a process's control groups and of those around them, of version 1 or 2.

    Slurm and systemd nest them, and the least limit holds. See cgroups(7) in Linux's manual.
    """
    for group in memory_groups(listing, root):
        for limit in (group / "memory.max", group / "memory.limit_in_bytes"):
            text = limit.read_text("ascii").strip() if limit.is_file() else "max"
            if text.isdecimal():
                yield int(text)
