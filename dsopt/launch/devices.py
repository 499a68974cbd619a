"""The devices of this node: GPUs by index, or CPU slots on a machine without GPUs."""

import functools
import os
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsopt.errors import DsoptError

# below the kernel's ephemeral range, so that no outgoing connection gets a port that dsopt has just chosen
_PORTS = range(20000, 32768)
_MOST_SLOTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePool:
    """The devices that one worker may use.

    Attributes:
        kind: "gpu" or "cpu".
        indices: their indices on this node.
        uuids: what identifies GPUs wherever they are seen from, by index, as far as the driver says it.
    """

    kind: str
    indices: tuple[int, ...]
    uuids: Mapping[int, str] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        if self.kind == "cpu":
            return f"{len(self.indices)} CPU slot{'s' if len(self.indices) != 1 else ''}"
        return f"GPU{'s' if len(self.indices) != 1 else ''} {','.join(map(str, self.indices))}"


def parse_devices(text: str | None) -> DevicePool:
    """The pool that a person asks for: `0,1,4-7` (GPUs), `cpu:16` (slots), or None for all devices.

    Raises:
        DsoptError: text of another form, a GPU that does not exist, GPUs on a machine without any, or slices of GPUs.
    """
    _refuse_slices()
    gpus = visible_gpus()
    if text is None:
        if gpus:
            return DevicePool(kind="gpu", indices=tuple(gpus), uuids=gpus)
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
    chosen = tuple(sorted(set(indices)))
    return DevicePool(kind="gpu", indices=chosen, uuids={index: gpus[index] for index in chosen})


def visible_gpus() -> dict[int, str]:
    """The GPUs that this process may use, by `nvidia-smi` and CUDA_VISIBLE_DEVICES: the UUID of each by its index."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    try:
        listing = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    uuids = {int(index): uuid for index, uuid in re.findall(r"^GPU (\d+):.*\(UUID: ([^)]+)\)", listing, re.MULTILINE)}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return dict(sorted(uuids.items()))
    chosen: dict[int, str] = {}
    for name in (word.strip() for word in visible.split(",")):
        found = [i for i, uuid in uuids.items() if name and (name == str(i) or uuid.startswith(name))]
        if len(found) != 1:
            break  # as CUDA does: whatever follows an unknown name is invisible
        chosen[found[0]] = uuids[found[0]]
    return chosen


def _refuse_slices() -> None:
    """Refuses MIG slices: they are no CPU slots, and CUDA gives a process only one of them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    slices = [name for name in (word.strip() for word in visible.split(",")) if name.startswith("MIG-")]
    if slices and os.environ.get("DS_ACCELERATOR") != "cpu":
        raise DsoptError(
            f"CUDA_VISIBLE_DEVICES: {slices[0]!r} is a MIG slice of a GPU. dsopt works with whole GPUs: name them by "
            "index or UUID, or set DS_ACCELERATOR=cpu to train on the CPU."
        )


def default_ranks(pool: DevicePool) -> int:
    """How many ranks `deepspeed` starts if the command does not say: one per GPU, or on the CPU one per NUMA node."""
    if pool.kind == "gpu":
        return len(pool.indices)
    return max(1, len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))))


@functools.cache
def is_this_node(name: str) -> bool:
    """Whether a name or address in a host file means the node that this process runs on."""
    if name in ("localhost", socket.gethostname()):
        return True
    try:
        addresses = socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    return any(_is_own(family, address) for family, _, _, _, address in addresses)


def _is_own(family: int, address: Any) -> bool:  # noqa: ANN401 - a pair or more, by the family
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True


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
