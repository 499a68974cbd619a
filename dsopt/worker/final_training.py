"""The devices of the real training that `dsopt run` starts: no run of dsopt begins on them while it trains."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dsopt.launch.device_locks import reserve
from dsopt.launch.devices import DevicePool, default_ranks, visible_gpus
from dsopt.launch.foreground import train
from dsopt.store.leases import count_free
from dsopt.store.studies import Store
from dsopt.study.command import LaunchCommand
from dsopt.study.spec import StudySpec
from dsopt.worker.capacity import pool_of

_LOOK_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 600.0  # leases of workers that died stay until another one comes


def train_best(store: Store, spec: StudySpec, command: LaunchCommand, tell: Callable[[str], object]) -> int:
    """Runs a training to its end, on devices on which no run of dsopt begins meanwhile.

    Args:
        store: the storage of whose runs it knows.
        spec: the study.
        command: the training.
        tell: told that it waits until runs on its devices have ended.

    Returns:
        Its exit code.

    Raises:
        DsoptError: the launcher cannot be found.
    """
    files = [] if spec.is_simulated else _reserve(store, spec, command, tell)
    try:
        return train(command, Path(spec.cwd), files)
    finally:
        for file in files:
            os.close(file)


def _reserve(store: Store, spec: StudySpec, command: LaunchCommand, tell: Callable[[str], object]) -> list[int]:
    pool = _devices_of(spec, command)
    files = reserve(pool)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    is_told = False
    while _is_used(store, pool) and time.monotonic() < deadline:
        if not is_told:
            tell(f"Waiting for the runs of dsopt on {pool} to end.")
            is_told = True
        time.sleep(_LOOK_SECONDS)
    return files


def _is_used(store: Store, pool: DevicePool) -> bool:
    with store.engine.connect() as connection:
        return count_free(connection, socket.gethostname(), pool) < len(pool.indices)


def _devices_of(spec: StudySpec, command: LaunchCommand) -> DevicePool:
    """The devices of this node that a command takes: the first ones, unless it names them."""
    gpus = [] if os.environ.get("DS_ACCELERATOR") == "cpu" else visible_gpus()
    uuids = {gpu.index: gpu.uuid for gpu in gpus}
    if not gpus:
        slots = DevicePool(kind="cpu", indices=())
        return DevicePool(kind="cpu", indices=tuple(range(command.ranks or default_ranks(slots))))
    pool = pool_of(spec, DevicePool(kind="gpu", indices=tuple(sorted(uuids)), uuids=uuids))
    return DevicePool(kind="gpu", indices=pool.indices[: command.ranks], uuids=uuids)
