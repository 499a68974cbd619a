"""Removes what runs leave behind on a machine, before it hurts the next run."""

import os
import time
from pathlib import Path

import psutil

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory lies on Linux
_NETWORK_FILESYSTEMS = frozenset(
    ["nfs", "nfs4", "lustre", "gpfs", "cifs", "smb3", "beegfs", "ceph", "fuse.sshfs", "9p"]
)
_OLD_SECONDS = 600.0


def remove_shared_memory(port: int) -> list[Path]:
    """Removes the all-reduce buffers that CPU ranks of a run leave in shared memory, 69 MB per rank.

    DeepSpeed names them after user, address and the run's own port, so this removes no other run's.
    """
    removed = []
    for path in _SHARED_MEMORY.glob(f"deepspeed_allreduce_buffer_{os.getuid()}_*_{port}_*"):
        path.unlink(missing_ok=True)
        removed.append(path)
    return removed


def remove_stale_build_locks() -> list[Path]:
    """Removes locks in torch's extension cache whose owner was killed while compiling. Every run would wait for them.

    The owner of a lock keeps the file open while it compiles. On a network file system, the owner may be on another
    node, so only locks older than ten minutes count as stale there.
    """
    locks = list(_extensions_cache().glob("*/*/lock")) + list(_extensions_cache().glob("*/lock"))
    removed = []
    for lock in locks:
        if lock in _open_files():
            continue
        if _is_on_network(lock) and time.time() - lock.stat().st_mtime < _OLD_SECONDS:
            continue
        lock.unlink(missing_ok=True)
        removed.append(lock)
    return removed


def _extensions_cache() -> Path:
    cache = os.environ.get("TORCH_EXTENSIONS_DIR")
    if cache:
        return Path(cache)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "torch_extensions"


def _open_files() -> set[Path]:
    paths = set()
    for process in psutil.process_iter():
        try:
            # not psutil's open_files(): it leaves out files opened in the way that torch opens its locks
            for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
                paths.add(descriptor.readlink())
        except OSError:
            continue
    return paths


def _is_on_network(path: Path) -> bool:
    mounts = [p for p in psutil.disk_partitions(all=True) if path.is_relative_to(p.mountpoint)]
    return bool(mounts) and max(mounts, key=lambda p: len(p.mountpoint)).fstype in _NETWORK_FILESYSTEMS
