"""The devices of this node: GPUs by index, or CPU slots on a machine without GPUs."""

import functools
import os
import re
import secrets
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsopt.errors import DsoptError
from dsopt.launch.gpus import Gpu, installed_gpus, used_by

if TYPE_CHECKING:
    from dsopt.launch.placers.placer import Placer

# below the kernel's ephemeral range, so that no outgoing connection gets a port that dsopt has just chosen
_PORTS = range(20000, 32768)
_MOST_SLOTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePool:
    """The devices that one worker may use.

    Attributes:
        kind: "gpu" or "cpu".
        indices: their indices on this node.
        uuids: what identifies GPUs wherever they are seen from, by index.
        left_out: which GPUs it has not because others use them, as text.
        shared: the GPUs that it has though others used them when it was chosen: somebody has named them.
        placer: has the nodes on which runs may take place; None: this one, and those of a command's host file.
        is_exclusive: whether a run has its nodes for itself.
        is_measured: whether a worker measures how fast the devices are before its first run.
    """

    kind: str
    indices: tuple[int, ...]
    uuids: Mapping[int, str] = field(default_factory=dict, compare=False)
    left_out: tuple[str, ...] = field(default=(), compare=False)
    shared: frozenset[int] = field(default=frozenset(), compare=False)
    placer: "Placer | None" = field(default=None, compare=False)
    is_exclusive: bool = field(default=False, compare=False)
    is_measured: bool = field(default=False, compare=False)

    def without(self, indices: Collection[int]) -> "DevicePool":
        """The others of them."""
        return replace(self, indices=tuple(index for index in self.indices if index not in indices))

    def __str__(self) -> str:
        if self.placer is not None:
            return str(self.placer)
        if self.kind == "cpu":
            return f"{len(self.indices)} CPU slot{'s' if len(self.indices) != 1 else ''}"
        return f"GPU{'s' if len(self.indices) != 1 else ''} {','.join(map(str, self.indices))}"


def parse_devices(text: str | None) -> DevicePool:
    """The pool that a person asks for: `0,1,4-7` (GPUs), `cpu:16` (slots), or None for all devices that are free.

    Raises:
        DsoptError: text of another form, a GPU that does not exist or cannot be used, GPUs on a machine without any, or
            nothing asked for where every GPU is in use.
    """
    _refuse_slices()
    gpus = [] if os.environ.get("DS_ACCELERATOR") == "cpu" else visible_gpus()
    slots = re.fullmatch(r"cpu:(\d{1,5})", text or f"cpu:{len(os.sched_getaffinity(0))}", re.ASCII)
    if slots and (text is not None or not gpus):
        return _slots(text, int(slots.group(1)), gpus)
    chosen = gpus if text is None else _named(text, gpus)
    faulty = [gpu for gpu in chosen if gpu.fault]
    if faulty:
        raise DsoptError(
            f"GPU {faulty[0].index} of this machine cannot be used: {faulty[0].fault}. "
            "Name others with --devices, such as --devices 0,1."
        )
    left_out = [used_by(gpu.index, gpu.users) for gpu in chosen if gpu.users and text is None]
    if chosen and len(left_out) == len(chosen):
        raise DsoptError(
            f"every GPU of this machine is in use: {left_out[0]}. Wait, or name the GPUs that dsopt may use all "
            "the same: --devices 0,1."
        )
    kept = [gpu for gpu in chosen if not gpu.users or text is not None]
    return DevicePool(
        kind="gpu",
        indices=tuple(gpu.index for gpu in kept),
        uuids={gpu.index: gpu.uuid for gpu in kept},
        left_out=tuple(left_out),
        shared=frozenset(gpu.index for gpu in kept if gpu.users),
    )


def _slots(text: str | None, count: int, gpus: Sequence[Gpu]) -> DevicePool:
    if count == 0:
        raise DsoptError(f"--devices: {text!r} means no slots; use at least cpu:1.")
    if count > _MOST_SLOTS:
        raise DsoptError(f"--devices: {text!r} means more slots than any node has; use at most cpu:{_MOST_SLOTS}.")
    if gpus:
        raise DsoptError(
            f"--devices: {text!r}: this machine has GPUs, and DeepSpeed would use them. "
            "Name GPUs, or set DS_ACCELERATOR=cpu to train on the CPU."
        )
    return DevicePool(kind="cpu", indices=tuple(range(count)))


def _named(text: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs that a text such as `0,1,4-7` names, in their order."""
    indices = named_indices(text)
    missing = sorted(indices - {gpu.index for gpu in gpus})
    if missing:
        have = f"GPUs {', '.join(str(gpu.index) for gpu in gpus)}" if gpus else "no GPU; use 'cpu:N' for N slots"
        raise DsoptError(f"--devices: {text!r}: no GPU {', '.join(map(str, missing))} here. This machine has {have}.")
    return sorted((gpu for gpu in gpus if gpu.index in indices), key=lambda gpu: gpu.index)


def named_indices(text: str) -> set[int]:
    """The GPUs that a text such as `0,1,4-7` names, by index, whether they are there or not.

    Raises:
        DsoptError: text of another form.
    """
    indices: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", part, re.ASCII)
        if match is None or int(match.group(2) or match.group(1)) < int(match.group(1)):
            raise DsoptError(
                f"--devices: {text!r}: {part!r} does not name a device. Expected GPU indices such as '0,1,4-7', "
                "or 'cpu:N' for N slots on a machine without GPUs."
            )
        indices |= set(range(int(match.group(1)), int(match.group(2) or match.group(1)) + 1))
    return indices


def visible_gpus() -> list[Gpu]:
    """The GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, in its order, or all.

    Raises:
        DsoptError: there are GPUs, and the driver does not work.
    """
    gpus = installed_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return gpus
    chosen: dict[int, Gpu] = {}
    for name in (word.strip() for word in visible.split(",")):
        found = [gpu for gpu in gpus if gpu.is_named(name)]
        if len(found) != 1:
            break  # as CUDA does: whatever follows an unknown name is invisible
        chosen[found[0].index] = found[0]
    return list(chosen.values())


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
    except (OSError, ValueError):  # unknown, or none that could be a name
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
        port = secrets.choice(_PORTS)  # forks of one program have the same random numbers otherwise
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        yield port
