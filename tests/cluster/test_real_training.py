"""Real DeepSpeed over two nodes: its ranks meet across them, train, and are measured, by ssh and by Slurm."""

import json
from pathlib import Path

import pytest

from dsopt.experiment.outcome import Measured
from dsopt.experiment.run import run_experiment
from dsopt.launch.devices import DevicePool, free_ports
from dsopt.launch.placers.ssh import HostFile
from dsopt.launch.spread import Spread
from dsopt.protocol.run_dir import RunDir
from dsopt.study.spec import MeasurementBudget
from tests.cluster.slurm import Slurm
from tests.cluster.sshd import Hosts
from tests.cluster.studies import check_finished, create_real
from tests.cluster.test_host_file import placed
from tests.cluster.test_slurm_runs import submitted
from tests.conftest import SCRIPTS, STUDIES, Dsopt
from tests.runs import launch, rules

pytestmark = [pytest.mark.cluster, pytest.mark.real]
by_ssh, by_slurm = pytest.mark.xdist_group("ssh"), pytest.mark.xdist_group("slurm")  # each group has one cluster

_OVER_BOTH = "deepspeed --num_nodes 2 --num_gpus 1"


def check_trained_on_both(dsopt: Dsopt) -> None:
    """Each run was measured, with two ranks of which each node had one, and the study has its answer."""
    runs = check_finished(dsopt, "tiny")
    assert {run["state"] for run in runs} == {"measured"}, [run["message"] for run in runs]
    for run in runs:
        metrics = json.loads((Path(run["run_dir"]) / "metrics.json").read_text())
        assert metrics["engine"]["world_size"] == 2
        assert (Path(run["run_dir"]) / "cmd.txt").read_text().startswith("# on node1: 0, node2: 0\n")
    assert (dsopt.cwd / "autotuning_results" / "ds_config_optimal.json").exists()


@by_ssh
def test_a_study_over_two_nodes_by_ssh(dsopt: Dsopt, ssh_hosts: Hosts) -> None:
    placed(dsopt, ssh_hosts, slots=1)
    create_real(dsopt, _OVER_BOTH)
    dsopt("worker", "tiny", "--hostfile", "hosts")
    check_trained_on_both(dsopt)


@by_slurm
def test_a_study_over_two_nodes_of_a_slurm_job(dsopt: Dsopt, slurm_cluster: Slurm) -> None:
    create_real(dsopt, _OVER_BOTH)
    job = submitted(dsopt, slurm_cluster, study="tiny", cpus=1)
    state = slurm_cluster.wait(job, "COMPLETED", "FAILED", seconds=600)
    assert state == "COMPLETED", (dsopt.cwd / "out").read_text()
    check_trained_on_both(dsopt)


ONE_RUN = {
    "torchrun": "torchrun --nnodes 2 --nproc_per_node 1 {tiny}/train.py --deepspeed_config {config}",
    "accelerate": "accelerate launch --use_deepspeed --num_machines 2 --num_processes 2 --same_network "
    "--mixed_precision no --deepspeed_config_file {config} {scripts}/accelerated.py",
}


@by_ssh
@pytest.mark.parametrize("launcher", ONE_RUN)
def test_a_run_over_two_nodes_by_another_launcher(
    tmp_path: Path, ssh_hosts: Hosts, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    for name, value in ssh_hosts.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "hosts").write_text(ssh_hosts.host_file(1))
    run_dir = RunDir.create(tmp_path, "run")
    config = run_dir.path / "ds_config.json"
    config.write_text(
        json.dumps(
            {
                "train_micro_batch_size_per_gpu": 4,
                "gradient_accumulation_steps": 1,
                "zero_optimization": {"stage": 1},
                "zero_allow_untested_optimizer": True,
                **({"optimizer": {"type": "AdamW", "params": {"torch_adam": True}}} if launcher == "torchrun" else {}),
            }
        )
    )
    typed = ONE_RUN[launcher].format(tiny=STUDIES / "tiny-gpt", scripts=SCRIPTS, config=config)
    run = launch(
        typed,
        cwd=tmp_path,
        run_dir=run_dir,
        devices=DevicePool(kind="cpu", indices=(0,)),
        port=next(free_ports()),
        placement=HostFile(tmp_path / "hosts").place({"node1": (0,), "node2": (0,)}),
    )
    judged = rules(measurement=MeasurementBudget(max_steps=10, max_seconds=3), timeout_seconds=180.0, expected=None)
    outcome = run_experiment(run, judged, lambda: False, lambda _: None, Spread)
    assert isinstance(outcome, Measured), f"{outcome}\n{run_dir.stderr.read_text()}"
    assert (outcome.engine.world_size, outcome.engine.micro_batch) == (2, 4)
