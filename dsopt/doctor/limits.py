"""What earlier runs left behind, and limits of this process that runs inherit."""

import resource
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsopt.doctor.check import Check, ok, warning
from dsopt.launch.devices import DevicePool
from dsopt.launch.leftovers import extensions_cache, stale_build_locks
from dsopt.study.ds_config import get_path
from dsopt.study.space import OFFLOADS
from dsopt.study.spec import StudySpec

LOCKS, MEMORY, FILES, SPACE = "build-locks", "locked-memory", "open-files", "address-space"
_LEAST_FILES: Final = 1024
_LOCKS_ANY_MEMORY: Final = 1 << 14  # CAP_IPC_LOCK
_INFINIBAND: Final = Path("/sys/class/infiniband")


def check_locks() -> Iterator[Check]:
    """Locks of a compiler that was killed, for which every later run would wait."""
    stale = stale_build_locks()
    for lock in stale:
        yield warning(
            LOCKS,
            f"{lock} has no owner. dsopt removes it before its first run; any other training waits for it for ever",
            f"rm {shlex.quote(str(lock))}",
        )
    if not stale:
        yield ok(LOCKS, f"no stale lock in {extensions_cache()}")


def check_locked_memory(spec: StudySpec | None, pool: DevicePool | None) -> Iterator[Check]:
    """How much memory a process may lock, if it has to."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    reason = _why_locked(spec, pool)
    told = f"a process may lock {limit >> 10} KiB of memory"
    if limit == resource.RLIM_INFINITY or _may_lock_anything():
        yield ok(MEMORY, "a process may lock as much memory as it likes")
    elif reason:
        yield warning(
            MEMORY,
            f"{told}; {reason} may need more",
            "ulimit -l unlimited; in a container --ulimit memlock=-1; in a systemd unit LimitMEMLOCK=infinity",
        )
    else:
        yield ok(MEMORY, f"{told}; nothing here needs more")


def check_open_files() -> Iterator[Check]:
    """How many files a process may have open: ranks and data loaders need many."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_FILES:
        fix = f"ulimit -n {max(most, limit)}" if most >= _LEAST_FILES else f"Raise the hard limit, which is {most}"
        yield warning(FILES, f"a process may have {told} files open; data loaders may need more", fix)
    else:
        yield ok(FILES, f"a process may have {told} files open")


def check_address_space() -> Iterator[Check]:
    """How much memory a process may map: CUDA maps more than the machine has."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        yield ok(SPACE, "a process may map as much memory as it likes")
    else:
        told = f"a process may map {limit >> 20} MiB of memory; CUDA maps more than the machine has"
        yield warning(SPACE, told, "ulimit -v unlimited, or ask your scheduler for no limit of virtual memory")


def _why_locked(spec: StudySpec | None, pool: DevicePool | None) -> str:
    for section in OFFLOADS:
        given = get_path(spec.own_config, f"zero_optimization.{section}") if spec is not None else None
        if isinstance(given, dict) and (given.get("pin_memory") is True or given.get("device") == "nvme"):
            return f"zero_optimization.{section} with locked memory"
    if pool is not None and pool.kind == "gpu" and _INFINIBAND.is_dir() and any(_INFINIBAND.iterdir()):
        return "NCCL over InfiniBand"
    return ""


def _may_lock_anything() -> bool:
    for line in Path("/proc/self/status").read_text("ascii", errors="replace").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) & _LOCKS_ANY_MEMORY)
    return False
