"""`make test-browser` where chromium is installed and does not start: it fails, and says so in a line."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_browser_that_does_not_start_fails_and_is_not_skipped(tmp_path: Path) -> None:
    chromium = tmp_path / "chromium"
    chromium.write_text("#!/bin/sh\necho 'error while loading shared libraries' >&2\nexit 127\n")
    chromium.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["make", "--old-file=install", "test-browser"],
        cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout
    told = [line for line in done.stdout.splitlines() if line.startswith("FAILED: ")]  # make may say where it is
    assert [line.partition(".")[0] for line in told] == ["FAILED: chromium is installed, and does not start"]
