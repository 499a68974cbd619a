"""Which nodes and devices the runs of a study need, whatever it tunes, and how many of them fit side by side."""

from pathlib import Path

import pytest

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.launch.placers.ssh import HostFile
from dsopt.study.spec import StudySpec
from dsopt.worker.capacity import check_capacity, lanes_of

POOL = DevicePool(kind="cpu", indices=(0, 1))


def tuned(folder: Path, options: str = "", **tuning: object) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "s",
            "command": f"deepspeed {options} train.py --deepspeed_config ds.json",
            "cwd": str(folder),
            "ds_config": {"train_micro_batch_size_per_gpu": 1},
            "autotuning": tuning,
        }
    )


def over(folder: Path, hosts: str) -> DevicePool:
    """A worker with a host file of these nodes."""
    (folder / "hosts").write_text(hosts)
    return DevicePool(kind="cpu", indices=(0, 1), placer=HostFile(folder / "hosts"))


@pytest.mark.parametrize(
    ("tuning", "lanes"),
    [
        ({"num_nodes": 2, "num_gpus": 2}, 1),
        ({"num_nodes": 2, "num_gpus": 1}, 2),
        ({"num_nodes": [1, 2], "num_gpus": 1}, 4),
        ({"num_nodes": 2, "num_gpus": [1, 2]}, 2),
        ({"num_nodes": [1, 2], "num_gpus": [1, 2]}, 4),
    ],
)
def test_as_many_runs_fit_as_of_the_smallest_choice(tmp_path: Path, tuning: dict[str, object], lanes: int) -> None:
    assert lanes_of(tuned(tmp_path, **tuning), over(tmp_path, "b slots=2\nc slots=2\n")) == lanes


@pytest.mark.parametrize(
    ("tuning", "why"),
    [
        ({"num_nodes": [1, 2, 4], "num_gpus": 1}, "it takes 4 nodes with 1 devices each; 4 devices of 2 nodes"),
        ({"num_nodes": [1, 2], "num_gpus": [1, 3]}, "it takes 2 nodes with 3 devices each"),
    ],
)
def test_a_choice_that_never_fits_is_refused_before_anything_runs(
    tmp_path: Path, tuning: dict[str, object], why: str
) -> None:
    pool = over(tmp_path, "b slots=3\nc slots=1\n" if "3" in why else "b slots=2\nc slots=2\n")
    with pytest.raises(DsoptError, match=why):
        check_capacity(tuned(tmp_path, **tuning), pool)


def test_fewer_nodes_than_the_command_says_leave_room_for_more_runs(tmp_path: Path) -> None:
    spec = tuned(tmp_path, "--num_nodes 2 --num_gpus 1", num_nodes=[1, 2])
    assert lanes_of(spec, over(tmp_path, "b slots=2\nc slots=2\n")) == 4


def test_a_choice_of_several_nodes_needs_nodes(tmp_path: Path) -> None:
    with pytest.raises(DsoptError, match=r"it takes 2 nodes\. Say which: with --hostfile FILE"):
        check_capacity(tuned(tmp_path, num_nodes=[1, 2], num_gpus=1), POOL)
