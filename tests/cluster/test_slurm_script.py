"""What `dsopt slurm script` prints, submitted to a real Slurm as it is."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dsopt import load_study
from tests.cluster.nodes import wait_until
from tests.cluster.slurm import Slurm
from tests.cluster.studies import check_finished, create, create_real, told_by_ranks
from tests.conftest import Dsopt
from tests.studies import check_nothing_lost_nothing_doubled, write_study

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("slurm")]


def submitted(slurm: Slurm, dsopt: Dsopt, *options: str, environment: Mapping[str, str] | None = None) -> str:
    """The job of a script as it is printed; the storage is in the script, not in the job's environment."""
    script = dsopt.cwd / "tune.sbatch"
    script.write_text(dsopt("slurm", "script", *options))
    variables = {"OMP_NUM_THREADS": "1", **(environment or {})}
    exported = ",".join(["NONE", *(f"{name}={value}" for name, value in variables.items())])
    return slurm.submit(script, f"--export={exported},SLURM_CONF={slurm.environment['SLURM_CONF']}")


def log_of(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("dsopt-*.log"))


def test_two_nodes_share_a_dry_run(slurm_cluster: Slurm, postgres_url: str, tmp_path: Path) -> None:
    dsopt = Dsopt(tmp_path, postgres_url)
    command = "deepspeed --num_gpus 8 train.py --deepspeed_config ds.json"
    write_study(tmp_path, simulation={"gpu": "A100-80GB", "model": "gpt2-xl"}, command=command)
    dsopt("study", "create", "study.yaml")
    job = submitted(slurm_cluster, dsopt, "simulated", "--nodes=2", "--gpus-per-node=2", "--time=10")
    assert slurm_cluster.wait(job, "COMPLETED", "FAILED", seconds=240) == "COMPLETED", log_of(tmp_path)
    assert dsopt.json("study", "show", "simulated")["state"] == "finished"
    assert "Study 'simulated' is finished." in log_of(tmp_path)
    assert not list(tmp_path.glob(".dsopt-worker*"))


def test_runs_of_two_nodes_have_one_worker(slurm_cluster: Slurm, dsopt: Dsopt) -> None:
    create(dsopt, "deepspeed", nodes=2, ranks=1)
    job = submitted(slurm_cluster, dsopt, "simulated", "--gpus-per-node=0", "--cpus-per-task=2", "--time=10")
    assert slurm_cluster.wait(job, "COMPLETED", "FAILED", seconds=240) == "COMPLETED", log_of(dsopt.cwd)
    assert told_by_ranks(dsopt) == ["rank 0 of 2 on node1", "rank 1 of 2 on node2"]
    check_finished(dsopt)


def test_what_the_time_does_not_allow_goes_on_after_a_requeue(slurm_cluster: Slurm, dsopt: Dsopt) -> None:
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    job = submitted(
        slurm_cluster, dsopt, "simulated", "--time=10", "--drain-seconds=90", environment={"SIMULATED_SECONDS": "6"}
    )
    slurm_cluster.wait(job, "RUNNING")
    slurm_cluster.run("scontrol", "update", f"JobId={job}", "TimeLimit=00:02:00")  # the signal comes in half a minute
    assert slurm_cluster.wait(job, "COMPLETED", "FAILED", "TIMEOUT", seconds=420) == "COMPLETED", log_of(dsopt.cwd)
    assert int(slurm_cluster.job(job)["Restarts"]) >= 1
    assert "is not finished. Continue with: dsopt worker simulated" in log_of(dsopt.cwd)
    check_nothing_lost_nothing_doubled(dsopt)
    with load_study("simulated", storage=dsopt.environment["DSOPT_STORAGE"]) as study:
        runs = [run.state for run in study.runs]
    assert len(runs) > 5
    assert set(runs) <= {"measured", "slow", "infeasible"}


def test_what_a_cancelled_job_ran_is_run_again(slurm_cluster: Slurm, dsopt: Dsopt) -> None:
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    job = submitted(slurm_cluster, dsopt, "simulated", "--time=10", environment={"SIMULATED_SECONDS": "600"})
    with load_study("simulated", storage=dsopt.environment["DSOPT_STORAGE"]) as study:
        wait_until(lambda: [run.state for run in study.runs] == ["running"], "its first run goes on")
        slurm_cluster.run("scancel", job)
        slurm_cluster.wait(job, "CANCELLED")
        wait_until(lambda: [run.state for run in study.runs] != ["running"], "the run has ended", 30)
    assert dsopt.json("workers") == []
    again = slurm_cluster.submit(dsopt.cwd / "tune.sbatch")
    assert slurm_cluster.wait(again, "COMPLETED", "FAILED", seconds=120) == "COMPLETED", log_of(dsopt.cwd)
    check_nothing_lost_nothing_doubled(dsopt)


@pytest.mark.real
def test_a_real_study_ends_on_a_node_without_gpus(slurm_cluster: Slurm, dsopt: Dsopt) -> None:
    create_real(dsopt, "deepspeed --num_gpus 2")
    job = submitted(slurm_cluster, dsopt, "tiny", "--gpus-per-node=0", "--cpus-per-task=2", "--time=20")
    assert slurm_cluster.wait(job, "COMPLETED", "FAILED", seconds=600) == "COMPLETED", log_of(dsopt.cwd)
    assert (dsopt.cwd / "autotuning_results" / "ds_config_optimal.json").exists()
