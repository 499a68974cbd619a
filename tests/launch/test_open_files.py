"""What a process has open is known, also in another container, where no process of this one is seen."""

import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dsopt.launch.open_files import is_open, is_seen_open

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a container")
ASKS = "import sys; from pathlib import Path; from dsopt.launch.open_files import {0}; print({0}(Path(sys.argv[1])))"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 64)
    return path


def test_a_file_is_in_use_while_it_is_open_or_mapped(file: Path) -> None:
    assert not is_open(file)
    with file.open("rb"):
        assert is_open(file)
    with file.open("r+b") as opened:
        mapped = mmap.mmap(opened.fileno(), 64)
    assert is_open(file)
    mapped.close()
    assert not is_open(file)


def test_what_is_gone_is_in_use_by_nobody_and_what_cannot_be_asked_may_be(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert not is_open(tmp_path / "nowhere")
    assert is_open(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    assert not is_open(tmp_path / "pipe")  # told without waiting for a writer


@needs_root
def test_a_file_is_in_use_that_only_another_container_has_open(file: Path) -> None:
    """A worker there removed a lock of the compiler, and the training that compiled here died of it."""
    inside = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c"]

    def asked(name: str) -> str:
        return subprocess.run(
            [*inside, ASKS.format(name), file], capture_output=True, text=True, check=True
        ).stdout.strip()

    with file.open("rb"):
        assert asked("is_seen_open") == "False"
        assert asked("is_open") == "True"
    assert asked("is_open") == "False"


def test_files_that_their_owner_closes_meanwhile_hide_no_other(file: Path) -> None:
    is_over = threading.Event()

    def open_and_close() -> None:
        while not is_over.is_set():
            for other in [open("/dev/null") for _ in range(20)]:  # noqa: SIM115 - it is about open files
                other.close()

    busy = threading.Thread(target=open_and_close, daemon=True)
    busy.start()
    opened = [open("/dev/null") for _ in range(40)]  # noqa: SIM115
    for other in opened[::2]:
        other.close()
    with file.open("rb"):
        assert all(is_seen_open(file) for _ in range(30))
    assert not is_seen_open(file)
    is_over.set()
    busy.join()
    for other in opened:
        other.close()
