"""The device that a rank trains on: its clock, its memory, its name, and a limit to what the rank may use of it."""

import os
import resource
from typing import Any, Final, Protocol

from dsopt.probe.clock import Clock, DeviceClock, HostClock
from dsopt.probe.host import host_memory_bytes
from dsopt.probe.memory import DeviceMemory, HostMemory, MemoryMeter

CPU: Final = "cpu"


class Device(Protocol):
    """What the probe asks of a device."""

    kind: str

    def clock(self) -> Clock: ...

    def memory(self) -> MemoryMeter: ...

    def name(self) -> str: ...

    def capacity_bytes(self) -> int:
        """What this rank could use of it without a limit."""
        ...

    def limit_memory(self, limit_bytes: int) -> None:
        """Limits what the rank may use, what torch does not count included. May be called again when that grew."""
        ...


class HostDevice:
    """The CPU: training is synchronous, and the kernel counts memory."""

    kind = CPU

    def clock(self) -> Clock:
        return HostClock()

    def memory(self) -> MemoryMeter:
        return HostMemory()

    def name(self) -> str:
        return CPU

    def capacity_bytes(self) -> int:
        """The rank's share of the node."""
        ranks_here = int(os.environ.get("LOCAL_SIZE", os.environ.get("LOCAL_WORLD_SIZE", 1)))
        return host_memory_bytes() // ranks_here

    def limit_memory(self, limit_bytes: int) -> None:
        """The kernel enforces it: private writable memory may not grow beyond the limit."""
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


class AcceleratorDevice:
    """A GPU or another device that computes while the host goes on.

    Args:
        kind: as PyTorch names it, such as `cuda`.
        library: what PyTorch offers for it, such as `torch.cuda`.
        index: which of those that this process sees.
    """

    def __init__(self, kind: str, library: Any, index: int) -> None:  # noqa: ANN401
        self.kind = kind
        self._library = library
        self._index = index

    def clock(self) -> Clock:
        return DeviceClock(self._library, self._index)

    def memory(self) -> MemoryMeter:
        return DeviceMemory(self._library, self._index)

    def name(self) -> str:
        return str(self._library.get_device_name(self._index))

    def capacity_bytes(self) -> int:
        return int(self._library.mem_get_info(self._index)[1])

    def limit_memory(self, limit_bytes: int) -> None:
        """torch's own limit holds for what its allocator takes; the context and communication libraries come first."""
        share = (limit_bytes - self.memory().outside()) / self.capacity_bytes()
        self._library.set_per_process_memory_fraction(min(1.0, max(0.0, share)), self._index)


def device_of(accelerator: Any) -> Device:  # noqa: ANN401 - DeepSpeed's
    """The device that DeepSpeed gives this rank, by its accelerator. It need not be the current one yet."""
    if accelerator.is_synchronized_device():
        return HostDevice()
    import torch

    kind = accelerator.device_name()
    index = int(os.environ.get("LOCAL_RANK", 0))
    return AcceleratorDevice(kind, accelerator if kind == CPU else getattr(torch, kind, accelerator), index)


def check_device(device: Device, leased: str | None) -> None:
    """Refuses to train on other devices than the run has leased.

    Args:
        device: what DeepSpeed chose.
        leased: `gpu` or `cpu`; None if nobody said.

    Raises:
        RuntimeError: says what to do.
    """
    is_host = isinstance(device, HostDevice)
    if leased == "cpu" and not is_host:
        raise RuntimeError(
            f"dsopt gave this run CPU slots, but DeepSpeed would train on {device.name()}. "
            "Let 'dsopt worker' see the GPUs (does nvidia-smi list them?), or set DS_ACCELERATOR=cpu."
        )
    if leased == "gpu" and is_host:
        raise RuntimeError(
            "dsopt gave this run GPUs, but DeepSpeed would train on the CPU: PyTorch sees no GPU here. "
            "Let 'python -c \"import torch; print(torch.cuda.is_available())\"' print True in the script's environment."
        )


def cuda_device() -> Device:
    """The current CUDA device, without DeepSpeed."""
    import torch

    return AcceleratorDevice("cuda", torch.cuda, torch.cuda.current_device())
