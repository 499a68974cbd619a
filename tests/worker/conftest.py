"""What tests of workers share: a disk that is soon full, and a database server of the test's own."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outages import Server


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 40 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount a disk")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def server(tmp_path: Path, postgres: str) -> Iterator[Server]:
    """A server of the test's own, which a test may stop, freeze or move."""
    server = Server(tmp_path / "pg", tmp_path)
    yield server
    server.close()
