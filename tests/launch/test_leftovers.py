"""What killed runs leave behind is taken away, and nothing that somebody has."""

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsopt.launch import leftovers
from dsopt.launch.leftovers import remove_stale_build_locks

LockOf = Callable[[str], Path]


@pytest.fixture
def lock_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LockOf:
    """Where torch has the lock of an extension by its name; there is no lock yet."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))

    def path(name: str) -> Path:
        lock = tmp_path / "py311_cpu" / name / "lock"
        lock.parent.mkdir(parents=True)
        return lock

    return path


def test_a_lock_whose_owner_was_killed_is_removed_and_a_held_one_kept(lock_of: LockOf) -> None:
    stale, held = lock_of("stale"), lock_of("held")
    stale.touch()
    with held.open("x"):
        assert remove_stale_build_locks() == [stale]
    assert held.exists()
    assert not stale.exists()


def test_a_lock_that_its_owner_is_releasing_is_kept(lock_of: LockOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch closes it, then removes it, and dies of a lock that is gone; or another one takes its place."""
    released, taken_again = lock_of("released"), lock_of("taken")
    released.touch()
    taken_again.touch()
    gone: list[bool] = []

    def release(_: float) -> None:
        gone.extend(not lock.exists() for lock in (released, taken_again))
        released.unlink()
        taken_again.unlink()
        taken_again.touch()

    monkeypatch.setattr(leftovers.time, "sleep", release)
    assert remove_stale_build_locks() == []
    assert gone == [False, False]
    assert taken_again.exists()


def test_nccls_memory_is_removed_once_nobody_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed ranks leave it. A young one may be about to be attached to by name."""
    monkeypatch.setattr(leftovers, "_SHARED_MEMORY", tmp_path)
    for name in ("nccl-old", "nccl-mapped", "nccl-open", "nccl-young", "another"):
        (tmp_path / name).write_bytes(b"x" * 64)
    now = time.time()
    os.utime(tmp_path / "nccl-young", (now + 300, now + 300))
    monkeypatch.setattr(time, "time", lambda: now + 700)
    with (tmp_path / "nccl-mapped").open("r+b") as file, mmap.mmap(file.fileno(), 64), (tmp_path / "nccl-open").open():
        assert leftovers.remove_nccl_segments() == [tmp_path / "nccl-old"]
    assert sorted(leftovers.remove_nccl_segments()) == [tmp_path / "nccl-mapped", tmp_path / "nccl-open"]
    assert {path.name for path in tmp_path.iterdir()} == {"nccl-young", "another"}
