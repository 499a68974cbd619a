"""Which devices a worker may use."""

import ctypes
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dsopt.errors import DsoptError
from dsopt.launch import gpus
from dsopt.launch.devices import DevicePool, parse_devices, visible_gpus
from dsopt.worker.capacity import places_of, pool_of
from tests.lagging.rig import build_nvml
from tests.lagging.rig import gpu_line as gpu
from tests.made_up import spec

DRIVER_NOT_LOADED, IS_LOST = 9, 15  # nvml.h


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Loads a library in place of the driver's: whoever asks for `libnvidia-ml.so.1` afterwards gets this one."""
    ctypes.CDLL(str(build_nvml(tmp_path_factory.mktemp("nvml"))))


@pytest.fixture
def node(nvml: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives this node GPUs, by lines of the stub's file."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)

    def make(*gpus: str, result: int = 0) -> None:
        file = tmp_path / "gpus"
        file.write_text("\n".join([str(result), *gpus]))
        monkeypatch.setenv("NVML_STUB", str(file))

    return make


@pytest.fixture
def four_gpus(node: Callable[..., None]) -> None:
    node(*map(gpu, "abcd"))


@pytest.mark.parametrize(
    ("visible", "expected"),
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
def test_visible_gpus(
    four_gpus: None, monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[int]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.index for gpu in visible_gpus()] == expected


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


def test_a_node_without_a_driver_has_cpu_slots(node: Callable[..., None]) -> None:
    node(result=DRIVER_NOT_LOADED)
    assert parse_devices(None).kind == "cpu"


@pytest.mark.parametrize("device_file", ["nvidia0", "nvidia12"])
def test_gpus_that_nobody_can_use_are_no_cpu_slots(
    node: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device_file: str
) -> None:
    (tmp_path / device_file).touch()
    monkeypatch.setattr(gpus, "_FOLDER", tmp_path)
    node(result=DRIVER_NOT_LOADED)
    with pytest.raises(DsoptError, match=rf"this node has GPUs \(.*/{device_file}\), but .*Driver Not Loaded"):
        parse_devices(None)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert parse_devices(None).kind == "cpu"


def test_a_gpu_that_is_lost_is_told_and_the_others_work(node: Callable[..., None]) -> None:
    node(gpu("a"), gpu("b", error=IS_LOST))
    for asked in (None, "0-1"):
        with pytest.raises(DsoptError, match="GPU 1 of this machine cannot be used: it does not answer: GPU is lost"):
            parse_devices(asked)
    assert parse_devices("0").indices == (0,)


def test_a_gpu_that_is_cut_into_slices_is_told(node: Callable[..., None]) -> None:
    node(gpu("a", sliced=1))
    with pytest.raises(DsoptError, match="GPU 0 of this machine cannot be used: it is cut into MIG slices"):
        parse_devices(None)


def test_a_gpu_that_somebody_uses_is_left_out_unless_it_is_asked_for(node: Callable[..., None]) -> None:
    node(gpu("a"), gpu("b", os.getpid(), 2**22 + 1))
    pool = parse_devices(None)
    assert pool.indices == (0,)
    user = psutil.Process().username()
    assert len(pool.left_out) == 1
    assert f"GPU 1 is used by process {os.getpid()} (" in pool.left_out[0]
    assert f", user {user}), process {2**22 + 1} of another container" in pool.left_out[0]
    assert parse_devices("1").indices == (1,)
    assert parse_devices("1").left_out == ()


def test_a_machine_whose_gpus_are_all_used_is_no_machine_with_cpu_slots(node: Callable[..., None]) -> None:
    node(gpu("a", os.getpid()))
    with pytest.raises(DsoptError, match=r"every GPU of this machine is in use: GPU 0 is used by process"):
        parse_devices(None)


def test_runs_of_dsopt_are_not_somebody(node: Callable[..., None]) -> None:
    """Which of them uses what is known from leases."""
    environment = {**os.environ, "DSOPT_RUN_DIR": "/somewhere"}
    with subprocess.Popen(["sleep", "60"], env=environment) as run:
        node(gpu("a", run.pid))
        assert parse_devices(None).indices == (0,)
        run.kill()


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
