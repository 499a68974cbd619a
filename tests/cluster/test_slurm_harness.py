"""The tests' Slurm does what tests need of it, and leaves nothing."""

import signal
from pathlib import Path

import pytest

from tests.cluster.left import present
from tests.cluster.nodes import wait_until
from tests.cluster.slurm import Slurm, slurm

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("slurm")]


def test_srun_reaches_both_nodes_and_gives_them_gpus(slurm_cluster: Slurm) -> None:
    told = slurm_cluster.run(
        "srun", "--nodes=2", "--gpus-per-node=2", "sh", "-c", "echo $(hostname) $CUDA_VISIBLE_DEVICES")  # fmt: skip
    assert sorted(told.splitlines()) == ["node1 0,1", "node2 0,1"]


def test_steps_of_a_job_share_its_node_with_exact(slurm_cluster: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "steps.sh"
    step = "srun --exact --nodes=1 --ntasks=1 --cpus-per-task=2 --mem=100 --gpus=1 --gres=gpu:1"
    script.write_text(
        "#!/bin/bash\n#SBATCH --nodes=1 --ntasks=2 --cpus-per-task=2 --gpus-per-node=2 --output=out\n"
        f"for i in 1 2; do {step} sh -c 'echo $CUDA_VISIBLE_DEVICES > gpu-$SLURM_STEP_ID; "
        "while [ $(ls gpu-* | wc -l) -lt 2 ]; do sleep 0.1; done' & done\nwait\n"
    )
    job = slurm_cluster.submit(script)
    assert slurm_cluster.wait(job, "COMPLETED", "FAILED") == "COMPLETED", (tmp_path / "out").read_text()
    assert {(tmp_path / f"gpu-{step}").read_text().strip() for step in (0, 1)} == {"0", "1"}


def test_a_job_can_be_cancelled(slurm_cluster: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "long.sh"
    script.write_text("#!/bin/bash\n#SBATCH --output=out\necho begun; srun sleep 600\n")
    job = slurm_cluster.submit(script)
    wait_until(lambda: (tmp_path / "out").exists() and "begun" in (tmp_path / "out").read_text(), "it has begun")
    slurm_cluster.run("scancel", job)
    assert slurm_cluster.wait(job, "CANCELLED") == "CANCELLED"


def test_all_is_gone_in_the_end_also_with_a_job_and_after_nodes_failed(tmp_path: Path) -> None:
    before = present(tmp_path)
    with slurm(tmp_path, "node1", "node2", "node3") as cluster:
        script = tmp_path / "long.sh"
        script.write_text("#!/bin/bash\nsetsid sleep 600 & srun sleep 600\n")
        jobs = [cluster.submit(script, "--requeue", "--nodelist", f"node{number}") for number in (1, 2)]
        for job in jobs:
            cluster.wait(job, "RUNNING")
        assert len(present(tmp_path) - before) > 8  # of each node: the node, its daemon; the jobs
        cluster.daemons["node3"].end(signal.SIGKILL)
        cluster.nodes["node2"].kill()
        for name in ("node2", "node3"):
            wait_until(lambda name=name: cluster.node_state(name).startswith("down"), f"{name} is taken for dead", 90)
        cluster.wait(jobs[1], "PENDING")
        assert cluster.state(jobs[0]) == "RUNNING"
        cluster.start("node3")
        wait_until(lambda: cluster.node_state("node3") == "idle", "node3 is back")
    assert present(tmp_path) == before
