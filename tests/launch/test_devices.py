"""Which devices a worker may use."""

import os
from pathlib import Path

import pytest

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool, parse_devices, visible_gpus
from dsopt.worker.capacity import places_of, pool_of
from tests.made_up import spec

LISTING = "\n".join(f"GPU {i}: NVIDIA H200 (UUID: GPU-{name * 4}-1)" for i, name in enumerate("abcd"))


@pytest.fixture
def four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose `nvidia-smi -L` lists four GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<END\n{LISTING}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [2, 0]),
        ("", []),
        ("1,1", [1]),
        ("GPU-bbbb,GPU-dd", [1, 3]),
        ("0,GPU-cccc-1", [0, 2]),
        ("0,9,1", [0]),  # CUDA, too, stops at one that it does not know
        ("\u00b2", []),
    ],
)
def test_visible_gpus(four_gpus: None, monkeypatch: pytest.MonkeyPatch, visible: str | None, gpus: list[int]) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert list(visible_gpus()) == gpus


@pytest.mark.parametrize(("text", "indices"), [("0,2-3", (0, 2, 3)), ("1", (1,)), ("2,2", (2,)), (None, (0, 1, 2, 3))])
def test_devices_that_are_asked_for(four_gpus: None, text: str | None, indices: tuple[int, ...]) -> None:
    pool = parse_devices(text)
    assert (pool.kind, pool.indices) == ("gpu", indices)
    assert pool.uuids == {index: f"GPU-{'abcd'[index] * 4}-1" for index in indices}


def test_slots_are_for_machines_that_train_on_the_cpu(four_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DsoptError, match="this machine has GPUs, and DeepSpeed would use them"):
        parse_devices("cpu:2")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert parse_devices("cpu:2") == DevicePool(kind="cpu", indices=(0, 1))


def test_all_gpus_are_used_where_nothing_is_asked_for(four_gpus: None) -> None:
    assert str(parse_devices(None)) == "GPUs 0,1,2,3"


@pytest.mark.parametrize(
    "text", ["", "x", "0-", "3-1", "cpu:", "cpu:0", "cpu:99999999999", "0-99999999999", "-1", "\u00b2", "4", "0,7"]
)
def test_devices_that_are_not_there(four_gpus: None, text: str) -> None:
    with pytest.raises(DsoptError, match="--devices"):
        parse_devices(text)


def test_slices_of_gpus_are_no_cpu_slots(four_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-aaaa,MIG-bbbb")
    for asked in (None, "0", "cpu:2"):
        with pytest.raises(DsoptError, match="CUDA_VISIBLE_DEVICES: 'MIG-aaaa' is a MIG slice"):
            parse_devices(asked)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert parse_devices("cpu:2").indices == (0, 1)


def test_a_broken_nvidia_smi_is_a_machine_without_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho driver mismatch >&2\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert visible_gpus() == {}


@pytest.mark.parametrize(
    ("options", "indices", "ranks"),
    [
        ("--num_gpus 2", (0, 1, 2, 3), 2),
        ("", (0, 1, 2, 3), 4),
        ("--include localhost:1,3", (1, 3), 2),
        ("--include=localhost:1-3", (1, 2, 3), 3),
        ("-e localhost:0", (1, 2, 3), 3),
    ],
)
def test_a_command_keeps_to_the_gpus_that_it_names(options: str, indices: tuple[int, ...], ranks: int) -> None:
    keeps_to(f"deepspeed {options} t.py --deepspeed_config c.json", indices, ranks)


@pytest.mark.parametrize(
    ("command", "indices", "ranks"),
    [
        ("CUDA_VISIBLE_DEVICES=2,3 deepspeed t.py --deepspeed_config c.json", (2, 3), 2),
        ("CUDA_VISIBLE_DEVICES=GPU-b,3 deepspeed t.py --deepspeed_config c.json", (1, 3), 2),
        ("CUDA_VISIBLE_DEVICES=1,2,3 torchrun --nproc_per_node 2 t.py --deepspeed c.json", (1, 2, 3), 2),
        (
            "accelerate launch --gpu_ids 0,2 --num_processes 2 --use_deepspeed --deepspeed_config_file c.json t.py",
            (0, 2),
            2,
        ),
        ("accelerate launch --gpu_ids all --num_processes 2 --deepspeed_config_file c.json t.py", (0, 1, 2, 3), 2),
    ],
)
def test_a_command_keeps_to_the_gpus_that_it_lets_ranks_see(command: str, indices: tuple[int, ...], ranks: int) -> None:
    keeps_to(command, indices, ranks)


def test_a_command_for_other_gpus_than_the_workers_is_refused() -> None:
    study = spec().model_copy(update={"command": "CUDA_VISIBLE_DEVICES=2,3 deepspeed t.py --deepspeed_config c.json"})
    with pytest.raises(DsoptError, match=r"uses none of this worker's GPUs 0,1\. Give the worker the GPUs"):
        places_of(study, DevicePool(kind="gpu", indices=(0, 1)))


def keeps_to(command: str, indices: tuple[int, ...], ranks: int) -> None:
    study = spec().model_copy(update={"command": command})
    four = DevicePool(kind="gpu", indices=(0, 1, 2, 3), uuids={i: f"GPU-{name}" for i, name in enumerate("abcd")})
    assert pool_of(study, four).indices == indices
    assert places_of(study, four).count == ranks
    slots = DevicePool(kind="cpu", indices=(0, 1, 2, 3))
    assert pool_of(study, slots) == slots
