"""The commands of `docs/clusters.md` for Slurm, in order, on a real Slurm."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm
from tests.docs.pages import DOCS, blocks
from tests.docs.test_pages import DATABASE, made_folder, shell_of

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]


def test_the_page_leads_to_a_finished_study(slurm_cluster: Slurm, postgres_url: str, tmp_path: Path) -> None:
    folder = made_folder(tmp_path)
    script = "set -euo pipefail\n" + "".join(
        shell_of(block, {DATABASE: postgres_url}) for block in blocks(DOCS / "clusters.md")
    )
    environment = {**os.environ, **slurm_cluster.environment, "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, text=True, timeout=400,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    [log] = folder.glob("dsopt-my-study-*.log")
    assert ended.returncode == 0, f"exit code {ended.returncode}, output:\n{ended.stdout}\n{log.read_text()}"
    assert "Study 'my-study' is finished." in log.read_text()
    assert "Configuration: " in ended.stdout
