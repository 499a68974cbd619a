"""The commands of `docs/clusters.md` and `docs/guides/slurm.md`, as they stand, on real nodes and a real Slurm."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm
from tests.cluster.sshd import Hosts
from tests.conftest import SCRIPTS
from tests.docs.pages import DOCS, Block, blocks
from tests.docs.test_pages import DATABASE, made_folder, shell_of

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("slurm")]

CLUSTERS = DOCS / "clusters.md"


def section(title: str) -> list[Block]:
    """The blocks of a section of the page."""
    [text] = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", CLUSTERS.read_text("utf-8"), re.M | re.S)
    return [block for block in blocks(CLUSTERS) if block.text in text]


def files_and_commands(found: list[Block]) -> str:
    """What a shell does with blocks, those included that only a cluster can run."""
    return "".join(shell_of(replace(block, reason=""), {}) for block in found)


def ran(script: str, folder: Path, environment: Mapping[str, str]) -> str:
    """What a script prints, which has to succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.environ['PATH'])}"
    ended = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"], cwd=folder, text=True, timeout=400,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment, "PATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    logs = [path.read_text() for path in (*folder.glob("dsopt-*.log"), *folder.glob("slurm-*.out"))]
    assert ended.returncode == 0, "\n".join([f"exit code {ended.returncode}, output:", ended.stdout, *logs])
    return ended.stdout


def folder_for_nodes(tmp_path: Path) -> Path:
    """A folder with a script that pretends to train on each of its ranks."""
    folder = made_folder(tmp_path)
    (folder / "train.py").write_bytes((SCRIPTS / "pretends.py").read_bytes())
    return folder


def test_a_host_file_leads_to_a_finished_study(ssh_hosts: Hosts, sqlite_url: str, tmp_path: Path) -> None:
    folder = folder_for_nodes(tmp_path)
    own = {**ssh_hosts.environment, "DSOPT_STORAGE": sqlite_url}
    printed = ran(files_and_commands(section("A host file")), folder, own)
    assert "Study 'two-nodes' is finished." in printed
    [log] = folder.glob("autotuning_results/baseline/stdout.log")
    assert {"rank 0 of 2 on node1", "rank 1 of 2 on node2"} <= set(log.read_text().splitlines())


def test_one_worker_for_a_job_leads_to_a_finished_study(slurm_cluster: Slurm, sqlite_url: str, tmp_path: Path) -> None:
    folder = folder_for_nodes(tmp_path)
    own = {**slurm_cluster.environment, "DSOPT_STORAGE": sqlite_url}
    files = [block for block in section("A host file") if block.caption]
    ran(f"{files_and_commands(files)}dsopt study create two-nodes.yaml", folder, own)
    printed = ran(files_and_commands(section("One worker for a Slurm allocation")), folder, own)
    job = printed.split()[-1]
    assert slurm_cluster.wait(job, "COMPLETED", "FAILED", seconds=300) == "COMPLETED"
    assert "Study 'two-nodes' is finished." in (folder / f"slurm-{job}.out").read_text()


def test_a_worker_on_each_node_leads_to_a_finished_study(
    slurm_cluster: Slurm, postgres_url: str, tmp_path: Path
) -> None:
    folder = made_folder(tmp_path)
    script = "".join(shell_of(block, {DATABASE: postgres_url}) for block in section("A worker on each node of Slurm"))
    printed = ran(script, folder, slurm_cluster.environment)
    [log] = folder.glob("dsopt-my-study-*.log")
    assert "Study 'my-study' is finished." in log.read_text()
    assert "Configuration: " in printed


def test_the_guide_for_one_node_leads_to_a_finished_study(
    slurm_cluster: Slurm, sqlite_url: str, tmp_path: Path
) -> None:
    folder = made_folder(tmp_path)
    [study] = [block for block in section("A worker on each node of Slurm") if block.caption == "my-study.yaml"]
    guide = list(blocks(DOCS / "guides" / "slurm.md"))
    own = {**slurm_cluster.environment, "DSOPT_STORAGE": sqlite_url}
    own |= {"SBATCH_GPUS_PER_NODE": "2", "SBATCH_WAIT": "1"}  # a node has two here; and the test waits for the job
    ran(files_and_commands([study, *guide]), folder, own)
    [log] = folder.glob("slurm-*.out")
    assert "Study 'my-study' is finished." in log.read_text()
