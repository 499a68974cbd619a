"""One worker for a Slurm allocation: its runs are job steps side by side on all nodes, and end with the job."""

import sys
from pathlib import Path

import pytest

from tests.cluster.left import present
from tests.cluster.nodes import wait_until
from tests.cluster.slurm import Slurm, slurm
from tests.cluster.studies import are_side_by_side, check_finished, create, runs_of, told_by_ranks
from tests.conftest import Dsopt

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

_JOB = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task={cpus} --output=out {more}
{variables}
exec {dsopt} worker simulated --slurm
"""


def submitted(dsopt: Dsopt, cluster: Slurm, more: str = "", cpus: int = 2) -> str:
    """The number of a job with a worker on both nodes."""
    script = dsopt.cwd / "job.sh"
    names = ("DSOPT_STORAGE", "XDG_CONFIG_HOME", "DSOPT_DEVICE_LOCKS", "OMP_NUM_THREADS", "PRETENDED_SECONDS")
    variables = [f"export {name}='{dsopt.environment[name]}'" for name in names if name in dsopt.environment]
    script.write_text(
        _JOB.format(cpus=cpus, more=more, variables="\n".join(variables), dsopt=Path(sys.executable).parent / "dsopt")
    )
    return cluster.submit(script)


def test_runs_are_job_steps_side_by_side(dsopt: Dsopt, slurm_cluster: Slurm) -> None:
    create(dsopt, "deepspeed", nodes=2, ranks=1)
    job = submitted(dsopt, slurm_cluster)
    state = slurm_cluster.wait(job, "COMPLETED", "FAILED", seconds=600)
    assert state == "COMPLETED", (dsopt.cwd / "out").read_text()
    runs = check_finished(dsopt)
    assert told_by_ranks(dsopt) == ["rank 0 of 2 on node1", "rank 1 of 2 on node2"]
    assert are_side_by_side(runs)


def test_a_cancelled_job_leaves_nothing_and_the_study_goes_on(dsopt: Dsopt, slurm_cluster: Slurm) -> None:
    dsopt.environment["PRETENDED_SECONDS"] = "60"
    create(dsopt, "deepspeed", nodes=2, ranks=1)
    before = present(slurm_cluster.folder)
    job = submitted(dsopt, slurm_cluster)
    log = dsopt.cwd / "autotuning_results" / "baseline" / "cmd.txt"
    wait_until(log.exists, "the baseline has begun", 120)
    slurm_cluster.run("scancel", job)
    slurm_cluster.wait(job, "CANCELLED", seconds=120)
    wait_until(lambda: present(slurm_cluster.folder) <= before, "nothing is left", 120)
    dsopt.environment["PRETENDED_SECONDS"] = "0.2"
    job = submitted(dsopt, slurm_cluster)
    assert slurm_cluster.wait(job, "COMPLETED", "FAILED", seconds=600) == "COMPLETED"
    check_finished(dsopt)


def test_a_node_that_fails_is_no_fault_of_the_candidate(dsopt: Dsopt, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with slurm(folder, "node1", "node2", "node3") as cluster:
        create(dsopt, "deepspeed", nodes=1, ranks=2)
        job = submitted(dsopt, cluster, more="--no-kill")
        log = dsopt.cwd / "autotuning_results"
        wait_until(lambda: any("node2" in path.read_text() for path in log.glob("*/stdout.log")), "it uses node2", 300)
        cluster.nodes["node2"].kill()
        wait_until(lambda: any(run["reason"] == "hardware" for run in runs_of(dsopt)), "the lost run is told", 300)
        cluster.run("scancel", job)
