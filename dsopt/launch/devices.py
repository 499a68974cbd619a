"""The devices of this node: GPUs by index, or CPU slots on a machine without GPUs."""

import os
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dsopt.errors import DsoptError

# below the kernel's ephemeral range, so that no outgoing connection gets a port that dsopt has just chosen
_PORTS = range(20000, 32768)
_MOST_SLOTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePool:
    """The devices that one worker may use: `kind` is "gpu" or "cpu"; `indices` are their indices on this node."""

    kind: str
    indices: tuple[int, ...]

    def __str__(self) -> str:
        if self.kind == "cpu":
            return f"{len(self.indices)} CPU slot{'s' if len(self.indices) != 1 else ''}"
        return f"GPU{'s' if len(self.indices) != 1 else ''} {','.join(map(str, self.indices))}"

    def names(self) -> list[str]:
        """The devices under the names that the worker leases: `gpu:0`, `cpu:1` …"""
        return [f"{self.kind}:{index}" for index in self.indices]


def parse_devices(text: str | None) -> DevicePool:
    """The pool that a person asks for: `0,1,4-7` (GPUs), `cpu:16` (slots), or None for all devices.

    Raises:
        DsoptError: text of another form, a GPU that does not exist, or GPUs on a machine without any.
    """
    gpus = visible_gpus()
    if text is None:
        if gpus:
            return DevicePool(kind="gpu", indices=tuple(gpus))
        return DevicePool(kind="cpu", indices=tuple(range(len(os.sched_getaffinity(0)))))
    slots = re.fullmatch(r"cpu:(\d{1,5})", text, re.ASCII)
    if slots and int(slots.group(1)) == 0:
        raise DsoptError(f"--devices: {text!r} means no slots; use at least cpu:1.")
    if slots and int(slots.group(1)) <= _MOST_SLOTS:
        if gpus and os.environ.get("DS_ACCELERATOR") != "cpu":
            raise DsoptError(
                f"--devices: {text!r}: this machine has GPUs, and DeepSpeed would use them. "
                "Name GPUs, or set DS_ACCELERATOR=cpu to train on the CPU."
            )
        return DevicePool(kind="cpu", indices=tuple(range(int(slots.group(1)))))
    indices: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", part, re.ASCII)
        if match is None or int(match.group(2) or match.group(1)) < int(match.group(1)):
            raise DsoptError(
                f"--devices: {text!r}: {part!r} does not name a device. Expected GPU indices such as '0,1,4-7', "
                "or 'cpu:N' for N slots on a machine without GPUs."
            )
        indices += range(int(match.group(1)), int(match.group(2) or match.group(1)) + 1)
    missing = sorted(set(indices) - set(gpus))
    if missing:
        have = f"GPUs {', '.join(map(str, gpus))}" if gpus else "no GPU; use 'cpu:N' for N slots"
        raise DsoptError(f"--devices: {text!r}: no GPU {', '.join(map(str, missing))} here. This machine has {have}.")
    return DevicePool(kind="gpu", indices=tuple(sorted(set(indices))))


def visible_gpus() -> list[int]:
    """Indices of the GPUs that this process may use, by `nvidia-smi` and CUDA_VISIBLE_DEVICES; empty without any."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        listing = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []
    uuids = {int(index): uuid for index, uuid in re.findall(r"^GPU (\d+):.*\(UUID: ([^)]+)\)", listing, re.MULTILINE)}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return sorted(uuids)
    chosen: list[int] = []
    for name in (word.strip() for word in visible.split(",")):
        found = [i for i, uuid in uuids.items() if name and (name == str(i) or uuid.startswith(name))]
        if len(found) != 1:
            break  # as CUDA does: whatever follows an unknown name is invisible
        if found[0] not in chosen:
            chosen.append(found[0])
    return chosen


def default_ranks(pool: DevicePool) -> int:
    """How many ranks `deepspeed` starts if the command does not say: one per GPU, or on the CPU one per NUMA node."""
    if pool.kind == "gpu":
        return len(pool.indices)
    return max(1, len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))))


def free_ports() -> Iterator[int]:
    """Ports of this host that nobody listens on now, in random order. The caller leases the one it takes."""
    while True:
        port = random.choice(_PORTS)  # noqa: S311 - to be unlike others', not to be secret
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port
