"""The nodes of a Slurm allocation, from what `scontrol` tells of it; `tests/cluster` asks a real one."""

from pathlib import Path

import pytest

from dsopt.errors import DsoptError
from dsopt.launch.placers.slurm import Slurm

# `hostnames` unfolds a[1-2] alone; `job` is what Slurm 22.05 prints of one, less the lines before and after
SCONTROL = """#!/bin/sh
case "$2 $3" in
"hostnames a[1-2]") printf 'a1\\na2\\n' ;;
"hostnames a[1-2],b") printf 'a1\\na2\\nb\\n' ;;
hostnames*) echo "$3" ;;
"job --details") printf 'JobId=7 JobName=w\\n   Priority=1 Nice=0\\n'; cat "$(dirname "$0")/details" ;;
esac
"""


@pytest.fixture(autouse=True)
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where to write what it says of the job's nodes."""
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "details").write_text("     Nodes=a1 CPU_IDs=0-3 Mem=800 GRES=\n")
    return tmp_path / "details"


def allocation(nodes: str, cpus: str, **more: str) -> Slurm:
    return Slurm({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": nodes, "SLURM_JOB_CPUS_PER_NODE": cpus, **more})


def test_nodes_may_have_unequal_numbers_of_gpus(scontrol: Path) -> None:
    scontrol.write_text(
        "     Nodes=a[1-2] CPU_IDs=0-3 Mem=800 GRES=gpu:h100:4(IDX:0-3)\n"
        "     Nodes=b CPU_IDs=0-1 Mem=400 GRES=gpu:a100:1(IDX:0),gpu:3090:1(IDX:2)\n"
    )
    found = allocation("a[1-2],b", "8(x2),2", SLURM_GPUS_ON_NODE="4")
    assert found.has_gpus
    assert found.hosts() == {"a1": (0, 1, 2, 3), "a2": (0, 1, 2, 3), "b": (0, 1)}
    assert "--cpus-per-task=4" in found.reach("a2", 2).words
    assert {"--cpus-per-task=1", "--gpus-per-node=1"} <= set(found.reach("b", 1).words)


def test_a_node_without_gpus_gets_no_runs_where_others_have_some(scontrol: Path) -> None:
    scontrol.write_text(
        "     Nodes=a1 CPU_IDs=0 Mem=1 GRES=gpu:2(IDX:0,3)\n     Nodes=a2 CPU_IDs=0 Mem=1 GRES=\n   MinCPUs=1\n"
    )
    assert allocation("a[1-2]", "1(x2)").hosts() == {"a1": (0, 1)}


def test_without_gpus_its_devices_are_the_cpus_of_each_node() -> None:
    found = allocation("a[1-2]", "4,2")
    assert not found.has_gpus
    assert found.hosts() == {"a1": (0, 1, 2, 3), "a2": (0, 1)}
    assert "--cpus-per-task=2" in found.reach("a1", 2).words


def test_what_a_job_held_is_free_when_slurm_has_started_it_anew() -> None:
    assert allocation("a1", "1").scope == "7.0"
    assert allocation("a1", "1", SLURM_RESTART_COUNT="2").scope == "7.2"


def test_outside_of_a_job_it_says_how_to_start_one() -> None:
    with pytest.raises(DsoptError, match="this is no Slurm allocation"):
        Slurm({})


def test_slurm_that_does_not_answer_is_told(scontrol: Path) -> None:
    (scontrol.parent / "scontrol").write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
    with pytest.raises(DsoptError, match=r"`scontrol show hostnames a1` does not work: Unable to contact"):
        allocation("a1", "1")
