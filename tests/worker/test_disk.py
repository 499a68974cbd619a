"""Disks that take no files: what a worker waits for, and what it does not take for that."""

import contextlib
import errno
import os
import subprocess
from pathlib import Path

import pytest

from dsopt.errors import DsoptError
from dsopt.store.studies import Store
from dsopt.worker.disk import unusable

FULL = (errno.ENOSPC, errno.EDQUOT)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE])
def test_an_error_of_the_disk_is_no_candidates_fault(tmp_path: Path, number: int) -> None:
    error = OSError(number, os.strerror(number))
    mend = f"cannot be written to: {os.strerror(number).lower()}. Mend it"
    told = f"the disk of {tmp_path} {'is full. Make room on it' if number in FULL else mend}"
    assert unusable(tmp_path, error) == told
    # the disk may have been mended before anybody looks
    assert unusable(tmp_path, said=f"rank 0: OSError: [Errno {number}] it says: '{tmp_path}/baseline/log'") == told


@pytest.mark.parametrize(
    "said",
    [
        "[Errno 30] Read-only file system: '/elsewhere/log'",
        "[Errno 2] No such file: '{folder}/log'",
        "OSError: [Errno 28] No space left on device: '/dev/shm/torch_1' Log: {folder}/run/stderr.log",
        "raised",
    ],
)
def test_a_scripts_own_mistake_is_its_own(tmp_path: Path, said: str) -> None:
    assert unusable(tmp_path, said=said.format(folder=tmp_path)) is None
    assert unusable(tmp_path / "not" / "yet" / "there", FileNotFoundError(errno.ENOENT, "no")) is None


def test_a_disk_that_only_reads_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    fields = [*found[:8], found.f_flag | os.ST_RDONLY, *found[9:]]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    assert "read-only file system" in (unusable(tmp_path) or "")


def test_a_disk_that_takes_no_more_files_is_waited_for(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=50", small_disk], check=True)
    assert unusable(small_disk) == (
        f"the disk of {small_disk} takes no more files, however much room it has. Remove some of its files"
    )
    subprocess.run(["mount", "-o", "remount,nr_inodes=1000", small_disk], check=True)
    assert unusable(small_disk) is None


def test_a_database_on_a_disk_that_is_full_says_so(small_disk: Path) -> None:
    """Who reads it needs a file beside it, which cannot be made."""
    url = f"sqlite:///{small_disk}/dsopt.db"
    Store.open(url, make=True).close()
    with contextlib.suppress(OSError), (small_disk / "much").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    with pytest.raises(DsoptError, match=r"Disk I/O error. Its disk may be full or broken\."):
        Store.open(url)
