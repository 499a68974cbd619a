"""Removes what runs leave behind on a machine, before it hurts the next run."""

import contextlib
import os
import time
from pathlib import Path

import psutil

from dsopt.launch.open_files import is_open, is_seen_open

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory lies on Linux
_NETWORK_FILESYSTEMS = frozenset(
    ["nfs", "nfs4", "lustre", "gpfs", "cifs", "smb3", "beegfs", "ceph", "fuse.sshfs", "9p"]
)
_OLD_SECONDS = 600.0
_RELEASE_SECONDS = 1.0


def remove_shared_memory(port: int) -> list[Path]:
    """Removes the all-reduce buffers that CPU ranks of a run leave in shared memory, 69 MB per rank.

    DeepSpeed names them after user, address and the run's own port, so this removes no other run's.
    """
    removed = []
    for path in _SHARED_MEMORY.glob(f"deepspeed_allreduce_buffer_{os.getuid()}_*_{port}_*"):
        path.unlink(missing_ok=True)
        removed.append(path)
    return removed


def remove_nccl_segments() -> list[Path]:
    """Removes shared memory of NCCL whose ranks were killed: this user's, older than ten minutes, and open nowhere."""
    removed = [path for path in _SHARED_MEMORY.glob("nccl-*") if _is_old(path) and not is_open(path)]
    for path in removed:
        path.unlink(missing_ok=True)
    return removed


def _is_old(path: Path) -> bool:
    """Whether a file of this user is older than ten minutes."""
    try:
        made = path.stat()
    except OSError:
        return False
    return made.st_uid == os.getuid() and time.time() - max(made.st_mtime, made.st_ctime) >= _OLD_SECONDS


def remove_stale_build_locks() -> list[Path]:
    """Removes locks in torch's extension cache whose owner was killed while compiling. Every run would wait for them.

    The owner of a lock keeps the file open while it compiles. It releases the lock by closing the file, then removing
    it, and dies if it is gone by then; so a lock is stale only if nobody has the very same file open a second later,
    in this container or another. On a network file system, the owner may be on another node, so only locks older than
    ten minutes count as stale there.
    """
    stale = stale_build_locks()
    for lock in stale:
        lock.unlink(missing_ok=True)
    return stale


def stale_build_locks() -> list[Path]:
    """The locks that `remove_stale_build_locks` would remove."""
    found = _locks_without_owner()
    if not found:
        return []
    time.sleep(_RELEASE_SECONDS)
    return [lock for lock, made in _locks_without_owner().items() if found.get(lock) == made]


def _locks_without_owner() -> dict[Path, tuple[int, int]]:
    """The locks that nobody has open, each with what tells it from a later one of the same name."""
    cache = extensions_cache()
    found = {}
    for lock in (*cache.glob("*/*/lock"), *cache.glob("*/lock")):
        with contextlib.suppress(FileNotFoundError):
            made = lock.stat()
            if not _has_owner(lock, made.st_mtime):
                found[lock] = (made.st_ino, made.st_ctime_ns)
    return found


def _has_owner(lock: Path, made_at: float) -> bool:
    """Whether whoever made a lock may be alive."""
    if is_on_network(lock):
        return time.time() - made_at < _OLD_SECONDS or is_seen_open(lock)
    return is_open(lock)


def extensions_cache() -> Path:
    """The folder that torch compiles extensions in."""
    cache = os.environ.get("TORCH_EXTENSIONS_DIR")
    if cache:
        return Path(cache)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "torch_extensions"


def is_on_network(path: Path) -> bool:
    """Whether a path is on a file system that other machines may share."""
    mounts = [p for p in psutil.disk_partitions(all=True) if path.is_relative_to(p.mountpoint)]
    return bool(mounts) and max(mounts, key=lambda p: len(p.mountpoint)).fstype in _NETWORK_FILESYSTEMS
