"""`dsopt slurm script`: what it prints, and what it refuses. `tests/cluster` submits it to a real Slurm."""

import subprocess

import pytest

from tests.conftest import Dsopt
from tests.studies import write_study


@pytest.fixture
def study(dsopt: Dsopt) -> Dsopt:
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    return dsopt


def test_the_script_is_one_that_bash_reads_with_the_options_in_front(study: Dsopt) -> None:
    told = study("slurm", "script", "simulated", "--time", "1-12", "--partition", "gpu", "--sbatch=--qos=high")
    subprocess.run(["bash", "-n"], input=told, text=True, check=True)
    head = told.partition("\n\n")[0].splitlines()
    assert head[0] == "#!/bin/bash"
    options = [line.removeprefix("#SBATCH ") for line in head if line.startswith("#SBATCH ")]
    assert {"--nodes=1", "--gpus-per-node=2", "--time=1-12", "--requeue", "--partition=gpu", "--qos=high",
            "--signal=B:USR1@960", f"--chdir={study.cwd}"} <= set(options)  # fmt: skip
    assert f"export DSOPT_STORAGE={study.environment['DSOPT_STORAGE']}\n" in told


def test_no_gpus_are_asked_for_where_there_are_none(study: Dsopt) -> None:
    told = study("slurm", "script", "simulated", "--time=60", "--gpus-per-node=0", "--cpus-per-task=4")
    assert "--gpus" not in told
    assert "srun --export=ALL --mem=0 --ntasks-per-node=1 --kill-on-bad-exit=0 --cpus-per-task=4 " in told


def test_a_file_is_written_once(study: Dsopt) -> None:
    assert "Wrote tune.sbatch." in study("slurm", "script", "simulated", "--time=60", "-o", "tune.sbatch")
    written = (study.cwd / "tune.sbatch").read_text()
    assert study.json("slurm", "script", "simulated", "--time=60") == {
        "study": "simulated", "script": written, "file": None}  # fmt: skip
    assert "already exists" in study("slurm", "script", "simulated", "--time=60", "-o", "tune.sbatch", code=1)


def test_a_password_stays_in_its_file(postgres_url: str, dsopt: Dsopt) -> None:
    url = postgres_url.replace("postgres:@", "postgres:hush@")
    assert url != postgres_url
    dsopt.environment["DSOPT_STORAGE"] = url
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    told = dsopt("slurm", "script", "simulated", "--nodes=2", "--time=60", code=1)
    assert "the script would hold its password" in told
    assert "hush" not in told
    del dsopt.environment["DSOPT_STORAGE"]
    (dsopt.cwd / "url").write_text(url)
    dsopt.environment["DSOPT_STORAGE_FILE"] = "url"
    told = dsopt("slurm", "script", "simulated", "--nodes=2", "--time=60")
    assert f"export DSOPT_STORAGE_FILE={dsopt.cwd}/url\n" in told
    assert "hush" not in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nosuch --time=60", "no study 'nosuch'"),
        ("simulated --time=soon", "--time: 'soon'. Expected hours, minutes and seconds"),
        ("simulated --time=1:2:3:4", "--time: '1:2:3:4'"),
        ("simulated --time=3", "--time: '3' is 180 seconds. Expected more than 180"),
        ("simulated --time=60 --nodes=0", "--nodes: 0. Expected at least 1"),
        ("simulated --time=60 --nodes=2", "--nodes: 2 nodes cannot share an SQLite database"),
        ("simulated --time=60 --gpus-per-node=-1", "--gpus-per-node: -1. Expected how many GPUs a node has"),
        ("simulated --time=60 --cpus-per-task=0", "--cpus-per-task: 0. Expected at least 1"),
        ("simulated --time=60 --drain-seconds=5", "--drain-seconds: 5. Expected from 90 to less than 3510"),
        ("simulated --time=60 --drain-seconds=3600", "--drain-seconds: 3600. Expected from 90"),
        ("simulated --time=60 --sbatch=--time=5", "--sbatch: '--time=5': the script has --time already"),
        ("simulated --time=60 --sbatch=qos", "--sbatch: 'qos'. Expected one of sbatch's options"),
        ("simulated --time=60 --partition=a;b\nc", "--sbatch: '--partition=a;b\\nc'"),
        ('simulated --time=60 --log=a"b', "--log: 'a\"b': sbatch cannot read a path with quotes"),
    ],
)
def test_what_slurm_could_not_take_is_refused(study: Dsopt, words: str, said: str) -> None:
    assert said in study("slurm", "script", *words.split(" "), code=1)


def test_one_worker_starts_runs_that_take_several_nodes(dsopt: Dsopt) -> None:
    command = "torchrun --nnodes 2 --nproc_per_node 2 train.py --deepspeed_config ds.json"
    write_study(dsopt.cwd, command=command)
    dsopt("study", "create", "study.yaml")
    script = dsopt("slurm", "script", "simulated", "--time=60")  # SQLite is enough for one worker
    assert "#SBATCH --nodes=2" in script
    assert "exec dsopt worker simulated --slurm; } &" in script
    assert "--nodes: 1. A run of study 'simulated' takes 2." in dsopt(
        "slurm", "script", "simulated", "--time=60", "--nodes=1", code=1
    )
