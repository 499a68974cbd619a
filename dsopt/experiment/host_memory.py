"""Whether the kernel has killed processes because the memory of the host was full."""

from pathlib import Path
from typing import Final

from dsopt.protocol.control_groups import memory_groups

_COUNTERS: Final = ("memory.events", "memory.oom_control")  # of control groups, version 2 and 1
_WHOLE_MACHINE: Final = Path("/proc/vmstat")


def count_kills(listing: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """How many processes the kernel has killed for want of memory, in the innermost control group that counts them.

    Of the whole machine where none does; 0 if nothing does. See cgroups(7) in Linux's manual.
    """
    counters = [group / name for group in memory_groups(listing, root) for name in _COUNTERS]
    found = (count for path in (*counters, _WHOLE_MACHINE) if (count := _count_in(path)) is not None)
    return next(found, 0)


def _count_in(path: Path) -> int | None:
    try:
        lines = path.read_text("ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = (words[1] for line in lines if (words := line.split())[:1] == ["oom_kill"] and len(words) == 2)
    count = next(found, "")
    return int(count) if count.isdecimal() else None
