"""The GPUs of this node, by NVIDIA's management library (NVML), in the order of the PCI bus."""

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import psutil

from dsopt.errors import DsoptError
from dsopt.launch.processes import is_of_a_run, start_ticks
from dsopt.study.quantity import gib

_FOLDER, _FILES = Path("/dev"), "nvidia[0-9]*"  # the kernel's driver makes a file for each GPU
_CPU_INSTEAD: Final = "To train on the CPU, set DS_ACCELERATOR=cpu."


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A process that computes on a GPU and is of no run of dsopt.

    Attributes:
        pid: its number, as the driver tells it.
        ticks: when it started, as `start_ticks`; None: there is no such process that this one may see.
        text: for people.
    """

    pid: int
    ticks: float | None
    text: str = field(compare=False)  # a process may change its name

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU.

    Attributes:
        index: its number in the order of the PCI bus.
        uuid: what identifies it wherever it is seen from.
        name: its model.
        memory_bytes: all of its memory.
        fault: why nobody can train on it; empty if they can.
        users: who computes on it beside dsopt's runs.
    """

    index: int
    uuid: str = ""
    name: str = "GPU"
    memory_bytes: int = 0
    fault: str = ""
    users: tuple[User, ...] = ()

    def is_named(self, name: str) -> bool:
        """Whether a name in CUDA_VISIBLE_DEVICES means it: its number, or the beginning of its UUID."""
        return name == str(self.index) or bool(name.startswith("GPU-") and self.uuid.startswith(name))

    def __str__(self) -> str:
        return f"{self.name}, {gib(self.memory_bytes)}"


def used_by(index: int, users: Iterable[User]) -> str:
    """Who computes on a GPU, for people: a sentence without its end."""
    return f"GPU {index} is used by {', '.join(map(str, users))}"


def installed_gpus() -> list[Gpu]:
    """The GPUs of this node; none if it has none.

    Raises:
        DsoptError: there are GPUs, and the driver or its library does not work.
    """
    with _nvml() as nvml:
        if nvml is None:
            return []
        return [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]


def driver_version() -> str:
    """The version of the driver; empty without one.

    Raises:
        DsoptError: as above.
    """
    with _nvml() as nvml:
        return "" if nvml is None else str(nvml.nvmlSystemGetDriverVersion())


@contextlib.contextmanager
def _nvml() -> Iterator[ModuleType | None]:
    """The library; None on a node without GPUs."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        files = sorted(_FOLDER.glob(_FILES))
        if files:
            raise DsoptError(
                f"this node has GPUs ({files[0]}), but NVIDIA's driver cannot be used: {error}. 'nvidia-smi' should "
                f"list them; a container must be started with its GPUs and the driver's utilities. {_CPU_INSTEAD}"
            ) from None
        yield None
        return
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise DsoptError(f"NVIDIA's driver on this node does not work: {error}. {_CPU_INSTEAD}") from None
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:  # noqa: ANN401 - a module
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        return Gpu(
            index=index,
            uuid=nvml.nvmlDeviceGetUUID(handle),
            name=nvml.nvmlDeviceGetName(handle),
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            fault="it is cut into MIG slices; dsopt works with whole GPUs" if _is_sliced(nvml, handle) else "",
            users=tuple(_user(process.pid) for process in _processes(nvml, handle) if not is_of_a_run(process.pid)),
        )
    except nvml.NVMLError as error:
        return Gpu(index=index, fault=f"it does not answer: {error}")


def _is_sliced(nvml: Any, handle: Any) -> bool:  # noqa: ANN401
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError_NotSupported:
        return False


def _processes(nvml: Any, handle: Any) -> list[Any]:  # noqa: ANN401
    try:
        return list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except nvml.NVMLError_NotSupported:
        return []


def _user(pid: int) -> User:
    try:
        process = psutil.Process(pid)
        text = f"process {pid} ({process.name()}, user {process.username()})"
        return User(pid=pid, ticks=start_ticks(pid), text=text)
    except psutil.Error:
        return User(pid=pid, ticks=None, text=f"process {pid} of another container")


if __name__ == "__main__":  # what a program elsewhere on this node asks
    json.dump({gpu.index: gpu.uuid for gpu in installed_gpus() if gpu.uuid}, sys.stdout)
