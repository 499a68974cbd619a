"""The machine: devices, disks, limits, leftovers. Each thing that can be wrong is made wrong."""

import ctypes
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dsopt.doctor import disks, limits
from dsopt.doctor.check import Check
from dsopt.doctor.devices import check_devices, check_place, find_devices
from dsopt.launch import gpus
from dsopt.launch.devices import DevicePool
from tests.doctor.made import study
from tests.lagging.rig import build_nvml
from tests.lagging.rig import gpu_line as gpu

CPU = DevicePool(kind="cpu", indices=(0, 1))
GPU = DevicePool(kind="gpu", indices=(0, 1))
DRIVER_NOT_LOADED, IS_LOST = 9, 15  # nvml.h


def told(found: Iterator[Check]) -> list[tuple[str, str]]:
    return [(one.status, one.message) for one in found]


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Loads a library in place of the driver's."""
    ctypes.CDLL(str(build_nvml(tmp_path_factory.mktemp("nvml"))))


@pytest.fixture
def node(nvml: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives this node GPUs, by lines of the library's file."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)

    def make(*lines: str, result: int = 0) -> None:
        (tmp_path / "gpus").write_text("\n".join([str(result), *lines]))
        monkeypatch.setenv("NVML_STUB", str(tmp_path / "gpus"))

    return make


def test_a_machine_without_gpus_is_ok() -> None:
    assert told(check_devices(find_devices("cpu:2"))) == [("ok", "runs use the CPU: 2 CPU slots")]


def test_gpus_that_are_free_are_named(node: Callable[..., None]) -> None:
    node(gpu("a"), gpu("b"))
    [(status, message)] = told(check_devices(find_devices(None)))
    assert status == "ok"
    assert message.startswith("GPU 0: ")
    assert "; GPU 1: " in message


@pytest.mark.parametrize("devices", [None, "0,1"])
def test_a_gpu_that_others_use_is_a_warning(node: Callable[..., None], devices: str | None) -> None:
    node(gpu("a"), gpu("b", os.getpid()))
    found = list(check_devices(find_devices(devices)))
    assert [one.status for one in found] == ["warning", "ok"]
    assert f"GPU 1 is used by process {os.getpid()} (" in found[0].message
    assert "--devices" in found[0].fix


def test_gpus_that_are_all_in_use_or_not_there_are_a_problem(node: Callable[..., None]) -> None:
    node(gpu("a", os.getpid()))
    assert "every GPU of this machine is in use" in told(check_devices(find_devices(None)))[0][1]
    assert "no GPU 7 here" in told(check_devices(find_devices("7")))[0][1]


def test_a_driver_that_does_not_work_is_a_problem(
    node: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node(result=DRIVER_NOT_LOADED)
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(gpus, "_FOLDER", tmp_path)
    [(status, message)] = told(check_devices(find_devices(None)))
    assert status == "problem"
    assert "NVIDIA's driver cannot be used" in message


def test_a_faulty_gpu_is_a_problem(node: Callable[..., None]) -> None:
    node(gpu("a", error=IS_LOST))
    [(status, message)] = told(check_devices(find_devices(None)))
    assert status == "problem"
    assert "it does not answer" in message


def test_a_command_that_wants_more_than_there_is_cannot_be_placed(tmp_path: Path) -> None:
    asks = study(tmp_path, command="deepspeed --num_gpus 8 train.py --deepspeed_config ds.json")
    [found] = _place(asks, CPU)
    assert found.status == "problem"
    assert "--num_gpus 8: this worker has 2 CPU slots" in found.message
    [fits] = _place(study(tmp_path), CPU)
    assert fits.status == "ok"


def test_a_variable_that_is_not_set_is_a_problem(tmp_path: Path) -> None:
    [found] = _place(study(tmp_path, pass_env=["NOBODYS_TOKEN"]), CPU)
    assert found.status == "problem"
    assert "'NOBODYS_TOKEN' is not set" in found.message


def _place(asked: object, pool: DevicePool) -> list[Check]:
    from dsopt.doctor.check import guarded

    return list(guarded("node", check_place, asked, pool))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_stale_lock_is_named_and_stays(cache: Path) -> None:
    lock = cache / "py311_cpu" / "an op" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    [found] = limits.check_locks()
    assert (found.status, found.fix) == ("warning", f"rm '{lock}'")
    assert lock.exists()
    with lock.open():
        assert [one.status for one in limits.check_locks()] == ["ok"]


def test_room_on_disks(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(disks.check_disks(study(tmp_path), CPU))
    assert [one.name for one in found] == ["disk"] * 3
    assert not cache.exists()
    assert found[0].message.startswith("results: ")
    assert found[0].message.endswith(f"free for {tmp_path / 'autotuning_results'}")
    plenty = 1 << 60
    monkeypatch.setattr(disks, "_RESULTS_BYTES", plenty)
    monkeypatch.setattr(disks, "_LEAST_CACHE_BYTES", plenty)
    monkeypatch.setattr(disks, "_RANK_BYTES", plenty)
    results, shared, extensions = disks.check_disks(study(tmp_path), CPU)
    assert (results.status, shared.status, extensions.status) == ("warning", "problem", "problem")
    assert "results_dir" in results.fix
    assert "--shm-size" in shared.fix
    assert "TORCH_EXTENSIONS_DIR" in extensions.fix
    monkeypatch.setattr(disks, "_GPU_BYTES", plenty)
    assert next(iter(list(disks.check_disks(None, GPU))[1:])).status == "warning"


def test_results_cannot_be_written_to_a_file(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "autotuning_results").write_text("")
    results, *_ = disks.check_disks(study(tmp_path), CPU)
    assert results.status == "problem"
    assert results.message.endswith("is a file")


OFFLOADS = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}}}


@pytest.mark.parametrize(
    ("limit", "config", "status"),
    [(1 << 16, OFFLOADS, "warning"), (1 << 16, {}, "ok"), (resource.RLIM_INFINITY, OFFLOADS, "ok")],
)
def test_memory_that_may_be_locked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: int, config: dict, status: str
) -> None:
    monkeypatch.setattr(limits, "_LOCKS_ANY_MEMORY", 0)  # whoever runs the tests may lock all of it
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    [found] = limits.check_locked_memory(study(tmp_path, ds_config=config), CPU)
    assert found.status == status
    assert ("ulimit -l" in found.fix) == (status == "warning")
    if status == "warning":
        assert found.message.startswith("a process may lock 64 KiB of memory; zero_optimization.offload_optimizer")


@pytest.mark.parametrize(("limit", "status"), [(resource.RLIM_INFINITY, "ok"), (8 << 30, "warning")])
def test_memory_that_may_be_mapped(monkeypatch: pytest.MonkeyPatch, limit: int, status: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    [found] = limits.check_address_space()
    assert (found.status, "ulimit -v unlimited" in found.fix) == (status, status == "warning")


def test_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = psutil.Process().num_fds()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(256, in_use + 64), hard))
        [low] = limits.check_open_files()
        assert (low.status, low.fix) == ("warning", f"ulimit -n {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        assert [one.status for one in limits.check_open_files()] == ["ok"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
