"""The devices of this machine, and whether a study's runs can start on them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dsopt.doctor.check import Check, ok, problem, skipped, warning
from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool, parse_devices, visible_gpus
from dsopt.launch.gpus import used_by
from dsopt.launch.placers import with_placer
from dsopt.study.spec import StudySpec
from dsopt.worker.check_node import check_node

GPUS: Final = "gpus"
NODE: Final = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The devices that runs may use; none, and why, if they cannot be used."""

    pool: DevicePool | None = None
    why: str = ""


def find_devices(text: str | None, engine: tuple[str, str] | None = None) -> Devices:
    """The devices that a person asks for, or all that are free, with the nodes of an engine if one is named."""
    try:
        return Devices(pool=parse_devices(text) if engine is None else with_placer(text, *engine))
    except DsoptError as error:
        return Devices(why=str(error))


def check_devices(found: Devices) -> Iterator[Check]:
    """GPUs that are found, faulty, or in use by others; on a machine without them, CPU slots."""
    if found.pool is None:
        yield problem(GPUS, found.why)
        return
    yield from (
        warning(GPUS, f"{used}; no run uses it", "Wait until it is free, or name it in --devices")
        for used in found.pool.left_out
    )
    if found.pool.placer is not None:
        yield ok(GPUS, f"runs use {found.pool}")
        return
    if found.pool.kind == "cpu":
        yield ok(GPUS, f"runs use the CPU: {found.pool}")
        return
    named = [gpu for gpu in visible_gpus() if gpu.index in found.pool.indices]
    for gpu in named:
        if gpu.users:
            yield warning(GPUS, used_by(gpu.index, gpu.users), "Choose others with --devices")
    yield ok(GPUS, "; ".join(f"GPU {gpu.index}: {gpu}" for gpu in named))


def check_place(spec: StudySpec, pool: DevicePool | None) -> Iterator[Check]:
    """Whether this machine has the devices, the launcher and the variables that a study needs."""
    if pool is None:
        yield skipped(NODE, "the devices cannot be used")
        return
    check_node(spec, pool)
    what = "a dry run needs no devices" if spec.is_simulated else "it has the launcher, devices and variables"
    yield ok(NODE, f"runs can start here: {what}")
