"""One worker for a Slurm allocation: its runs are job steps side by side on all nodes, and end with the job."""

import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.left import present
from tests.cluster.nodes import wait_until
from tests.cluster.slurm import Slurm, slurm
from tests.cluster.studies import are_side_by_side, check_finished, create, let_two_meet, runs_of, told_by_ranks
from tests.conftest import Dsopt
from tests.studies import write_study

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("slurm")]

_DSOPT = Path(sys.executable).parent / "dsopt"
_JOB = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task={cpus} --output=out {more}
{variables}
exec {dsopt} worker {study} --slurm
"""


def submitted(
    dsopt: Dsopt, cluster: Slurm, more: str = "", cpus: int = 2, study: str = "simulated", of: str = _JOB
) -> str:
    """The number of a job with a worker on both nodes."""
    script = dsopt.cwd / "job.sh"
    names = (
        "DSOPT_STORAGE",
        "XDG_CONFIG_HOME",
        "DSOPT_DEVICE_LOCKS",
        "DSOPT_SPEED_CHECK",
        "OMP_NUM_THREADS",
        "PRETENDED_SECONDS",
        "PRETENDED_MEETING",
        "SIMULATED_SECONDS",
        "PATH",
    )
    variables = [f"export {name}='{dsopt.environment[name]}'" for name in names if name in dsopt.environment]
    script.write_text(of.format(cpus=cpus, more=more, variables="\n".join(variables), dsopt=_DSOPT, study=study))
    return cluster.submit(script)


def test_runs_are_job_steps_side_by_side(dsopt: Dsopt, slurm_cluster: Slurm) -> None:
    let_two_meet(dsopt)
    create(dsopt, "deepspeed", nodes=2, ranks=1)
    job = submitted(dsopt, slurm_cluster)
    state = slurm_cluster.wait(job, "COMPLETED", "FAILED", seconds=600)
    assert state == "COMPLETED", (dsopt.cwd / "out").read_text()
    runs = check_finished(dsopt)
    assert told_by_ranks(dsopt) == ["rank 0 of 2 on node1", "rank 1 of 2 on node2"]
    assert are_side_by_side(runs)


def test_jobs_that_share_nodes_use_the_gpus_that_each_was_given(dsopt: Dsopt, slurm_cluster: Slurm) -> None:
    """Each has one of the two GPUs of both nodes, so room for one run: what goes on side by side is of both."""
    let_two_meet(dsopt)
    create(dsopt, "deepspeed", nodes=2, ranks=1)
    jobs = [submitted(dsopt, slurm_cluster, more="--gpus-per-node=1") for _ in range(2)]
    for job in jobs:
        state = slurm_cluster.wait(job, "COMPLETED", "FAILED", seconds=300)
        assert state == "COMPLETED", (dsopt.cwd / "out").read_text()
    runs = check_finished(dsopt)
    assert are_side_by_side(runs)
    assert len({run["worker_id"] for run in runs}) == 2
    assert any(f"@{jobs[1]}.0" in run["devices"] for run in runs), runs


def test_nodes_of_a_job_have_as_many_gpus_as_it_was_given_there(slurm_cluster: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    ask = "from dsopt.launch.placers.slurm import Slurm; print(sorted(map(len, Slurm().hosts().values())))"
    asked = "#SBATCH --nodes=2 --ntasks=3 --gpus=3 --output=out"
    script.write_text(f"#!/bin/bash\n{asked}\nexec {sys.executable} -c '{ask}'\n")
    job = slurm_cluster.submit(script)
    slurm_cluster.wait(job, "COMPLETED", "FAILED")
    assert (tmp_path / "out").read_text() == "[1, 2]\n"


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


@pytest.fixture
def three_nodes() -> Iterator[Slurm]:
    """A Slurm of its own, in which nodes may fail, and of which nothing may be left."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:  # short: sockets are in it
        folder = Path(name)
        before = present(folder)
        with slurm(folder, "node1", "node2", "node3") as cluster:
            yield cluster
        assert present(folder) == before


def begun_on_node2(dsopt: Dsopt, cluster: Slurm) -> str:
    """The number of a job that node1 and node2 work for, once a run uses both."""
    create(dsopt, "deepspeed", nodes=1, ranks=2)
    job = submitted(dsopt, cluster, more="--no-kill")
    log = dsopt.cwd / "autotuning_results"
    wait_until(lambda: any("node2" in path.read_text() for path in log.glob("*/stdout.log")), "it uses node2", 300)
    return job


def check_goes_on(dsopt: Dsopt, cluster: Slurm, job: str) -> None:
    """The study is finished by what is left, and what was lost is told apart from the candidates."""
    state = cluster.wait(job, "COMPLETED", "FAILED", "NODE_FAIL", seconds=300)
    assert state == "COMPLETED", (dsopt.cwd / "out").read_text()
    runs = check_finished(dsopt)
    lost = [run for run in runs if run["state"] == "failed"]
    assert lost
    assert {run["reason"] for run in lost} == {"hardware"}, lost
    assert all("node 'node2'" in run["message"] for run in lost)
    measured = {(run["stage"], run["trial"]) for run in runs if run["state"] == "measured"}
    assert {(run["stage"], run["trial"]) for run in lost} <= measured


def test_a_node_that_fails_is_no_fault_of_the_candidate(dsopt: Dsopt, three_nodes: Slurm) -> None:
    job = begun_on_node2(dsopt, three_nodes)
    three_nodes.nodes["node2"].kill()
    check_goes_on(dsopt, three_nodes, job)


def test_nor_is_a_daemon_that_dies_and_its_ranks_end_although_the_node_lives(dsopt: Dsopt, three_nodes: Slurm) -> None:
    job = begun_on_node2(dsopt, three_nodes)
    three_nodes.daemons["node2"].end(signal.SIGKILL)
    check_goes_on(dsopt, three_nodes, job)
    left = "pretends.py"
    wait_until(lambda: left not in three_nodes.nodes["node2"].run("ps", "-eo", "args"), "its ranks have ended", 120)


_EACH = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --output=out
{variables}
srun --kill-on-bad-exit=0 {dsopt} worker simulated --devices cpu:2
"""


def test_what_a_killed_worker_of_several_ran_another_runs_again(dsopt: Dsopt, slurm_cluster: Slurm) -> None:
    write_study(dsopt.cwd, autotuning={"max_train_batch_size": 128, "num_tuning_micro_batch_sizes": 4})
    dsopt.environment["SIMULATED_SECONDS"] = "1"
    dsopt("study", "create", "study.yaml")
    before = present(slurm_cluster.folder)
    job = submitted(dsopt, slurm_cluster, of=_EACH)
    wait_until(lambda: any(of_worker(run, "node2") for run in runs_of(dsopt)), "the worker of node2 runs one", 120)
    found = [process for process in psutil.process_iter(["ppid"]) if of_node2(process)]
    [worker] = [process for process in found if process.info["ppid"] not in {other.pid for other in found}]
    worker.kill()
    slurm_cluster.wait(job, "COMPLETED", "FAILED", seconds=300)  # as one of its tasks was killed
    runs = check_finished(dsopt)
    [lost] = [run for run in runs if run["reason"] == "lost"]
    assert of_worker(lost | {"state": "running"}, "node2")
    again = [run for run in runs if (run["stage"], run["trial"]) == (lost["stage"], lost["trial"])][-1]
    assert (again["node"], again["state"]) == ("node1", "measured")
    wait_until(lambda: present(slurm_cluster.folder) <= before, "nothing is left", 60)


def of_worker(run: dict[str, Any], node: str) -> bool:
    return (run["state"], run["node"]) == ("running", node)


def of_node2(process: psutil.Process) -> bool:
    """Whether it is the worker there, or what that forks and has not yet become another program."""
    try:
        return process.cmdline()[1:3] == [str(_DSOPT), "worker"] and process.environ().get("SLURM_NODEID") == "1"
    except (psutil.Error, OSError):
        return False
