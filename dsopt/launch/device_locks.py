"""Which devices of this machine workers on which database have.

A run leases its devices in its study's database, which knows nothing of other databases. So a worker also locks the
devices that it may use, with files on this machine. Workers on the same database share these locks, others are refused.
A training that `dsopt run` starts takes locks of another kind, beside which no run and no other training begins, on
whatever database. The kernel frees a lock when its process ends, whatever ends it.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.launch.gpus import installed_gpus
from dsopt.launch.trainings import Mark
from dsopt.protocol.machine_folder import is_trusted, machine_folder
from dsopt.protocol.private import make_private

_LOCK_SECONDS: Final = 2.0
_TRAINING: Final = ".training"


class DeviceLocks:
    """The locks of one worker.

    Args:
        database: what identifies its database.
        shown: how people are told which one it is.
    """

    def __init__(self, database: str, shown: str) -> None:
        self._database, self._shown = database, shown
        self._files: dict[Path, int] = {}

    def hold(self, pool: DevicePool) -> None:
        """Locks the devices of a pool until `close`; not where the folder cannot be written, or is another user's.

        Raises:
            DsoptError: workers on another database have one of them. None is locked that was not before.
        """
        folder = machine_folder()
        if folder.exists() and not is_trusted(folder):
            return
        paths = {folder / name: index for index, name in _names(pool).items()}
        before = set(self._files)
        with contextlib.suppress(OSError), _alone(folder):
            for path, index in paths.items():
                if path not in self._files and (owner := self._lock(path)) is not None:
                    self._free(set(self._files) - before)
                    raise DsoptError(
                        f"--devices: {_device(pool, index)} of this machine is in use by workers on another database "
                        f"({owner}), so runs would slow each other down. Use the same database (--storage), name other "
                        "devices (--devices), or wait until those workers have ended."
                    )

    def belong_to(self, database: str) -> None:
        """Notes that the database is another one now, such as a file that was put in the place of the former."""
        if database != self._database:
            self._database = database
            for descriptor in self._files.values():
                self._sign(descriptor)

    def close(self) -> None:
        """Frees them."""
        self._free(set(self._files))

    def _free(self, paths: Iterable[Path]) -> None:
        for descriptor in [self._files.pop(path) for path in paths]:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a fork of this process may have it open, too
            os.close(descriptor)

    def _lock(self, path: Path) -> str | None:
        """Locks a device. Returns which other database has it; None: it is locked.

        Where the disk is full, nobody can write down who has it. Others then share it, as if it were theirs.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._sign(descriptor)
        except BlockingIOError:
            database, _, shown = os.pread(descriptor, 4096, 0).decode(errors="replace").partition("\n")
            if database and database != self._database:
                os.close(descriptor)
                return shown
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self._files[path] = descriptor
        return None

    def _sign(self, descriptor: int) -> None:
        """Writes down whose a lock is."""
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{self._database}\n{self._shown}".encode(), 0)


def reserve(pool: DevicePool, where: str, mark: Mark) -> list[int]:
    """Keeps runs and other trainings off the devices of a pool.

    That is for as long as somebody has these files open, and then until no rank of the training lives, unless they
    are released.

    Args:
        pool: the devices; all are kept, or none.
        where: the training's folder, which others are told.
        mark: what its ranks are known by.

    Returns:
        The files; of devices whose file nobody can write, none.

    Raises:
        DsoptError: another training of `dsopt run` has one of them.
    """
    folder = machine_folder()
    if folder.exists() and not is_trusted(folder):
        return []
    files: list[int] = []
    for index, name in sorted(_names(pool).items()):
        try:
            make_private(folder)
            files.append(os.open(folder / f"{name}{_TRAINING}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            _wait_for(files[-1])
            if _is_left(files[-1]):
                raise BlockingIOError
            os.ftruncate(files[-1], 0)
            os.pwrite(files[-1], f"{mark}\n{where}".encode(), 0)
        except BlockingIOError:
            _, _, other = os.pread(files[-1], 4096, 0).decode(errors="replace").partition("\n")
            for file in files:
                os.close(file)
            device = _device(pool, index)
            raise DsoptError(f"another training that dsopt has started, in {other}, has {device}") from None
        except OSError:  # nobody can write there
            continue
    return files


def release(files: Iterable[int]) -> None:
    """Gives back what was reserved, once the training is over."""
    for file in files:
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
        os.close(file)


def without_reserved(pool: DevicePool) -> DevicePool:
    """The devices of a pool that no training of `dsopt run` has now."""
    if not is_trusted(machine_folder()):  # what others have put there keeps nobody off
        return pool
    reserved = {path.name for path in machine_folder().glob(f"*{_TRAINING}") if _is_reserved(path)}
    if not reserved:
        return pool
    taken = {index for index, name in _names(pool).items() if f"{name}{_TRAINING}" in reserved}
    return pool.without(taken) if taken else pool


def reserved_on(kind: str, indices: Collection[int]) -> DevicePool | None:
    """Those of this machine's devices with these indices that a training of `dsopt run` has now; None: it has none."""
    uuids: dict[int, str] = {}
    if kind == "gpu":
        with contextlib.suppress(DsoptError):  # ranks that meet it say so
            uuids = {gpu.index: gpu.uuid for gpu in installed_gpus() if gpu.index in indices}
    pool = DevicePool(kind=kind, indices=tuple(indices), uuids=uuids)
    left = set(without_reserved(pool).indices)
    return pool.without(left) if left != set(indices) else None


def _is_reserved(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that workers that look meet no lock
        return _is_left(descriptor)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _is_left(descriptor: int) -> bool:
    """Whether a training goes on though nobody has its files any more: somebody has killed dsopt and the launcher.

    Where it does not, the file forgets it, so that nobody looks at all processes again.
    """
    text, _, _ = os.pread(descriptor, 4096, 0).decode(errors="replace").partition("\n")
    mark = Mark.parse(text)
    if mark is not None and mark.living():
        return True
    os.ftruncate(descriptor, 0)
    return False


def _device(pool: DevicePool, index: int) -> str:
    return f"{'GPU' if pool.kind == 'gpu' else 'CPU slot'} {index}"


def _names(pool: DevicePool) -> dict[int, str]:
    """What the files of devices are called, by index."""
    return {index: pool.uuids.get(index) or f"{pool.kind}-{index}" for index in pool.indices}


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While no other worker of this user locks devices or looks who has them, unless one is suspended meanwhile."""
    make_private(folder)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        with contextlib.suppress(BlockingIOError):
            _wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int) -> None:
    """Waits for a lock that others have for milliseconds, unless they are suspended meanwhile.

    Raises:
        OSError: after two seconds.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
