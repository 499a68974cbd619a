"""The devices of a training: which its command takes, and whether others have left them."""

import contextlib
import os
from collections.abc import Collection

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool, default_ranks, parse_devices, visible_gpus
from dsopt.launch.gpus import Gpu, installed_gpus, used_by
from dsopt.launch.strangers import Strangers
from dsopt.store.burying import Burying
from dsopt.store.leases import Request, count_free_after_all
from dsopt.store.studies import Store
from dsopt.store.trouble import database_error, is_away
from dsopt.store.workers import registration
from dsopt.study.command import LaunchCommand


class Room:
    """Whether the devices of a training are free: what dead workers left there is freed here, whoever else works.

    Args:
        store: the storage of whose runs it knows.
        pool: the devices.
        named: the GPUs on which others do not matter.
    """

    def __init__(self, store: Store, pool: DevicePool, named: Collection[int]) -> None:
        self._store, self._pool = store, pool
        self._me = registration()
        self._burying = Burying(store.engine, pool)
        self._strangers = Strangers(pool.without(named))

    def why_not_yet(self) -> str | None:
        """Why the training has to wait; None: it can begin."""
        try:
            free = count_free_after_all(self._store.engine, self._me.node, Request(pool=self._pool, count=0))
            if free < len(self._pool.indices):
                with self._store.engine.connect() as connection:
                    seen = self._burying.look(connection, self._me)
                if self._burying.see_to(seen, self._me):
                    return self.why_not_yet()
                return f"runs of dsopt on {self._pool} have not ended ('dsopt workers' shows them)"
        except Exception as error:
            if not is_away(error):
                raise
            return f"{self._store.shown_url} cannot be reached: {database_error(error) or error}"
        used = self._strangers.on(self._pool.indices)
        return "; ".join(used_by(index, users) for index, users in used.items()) or None


def devices_of(command: LaunchCommand) -> DevicePool:
    """The devices of this node that a command takes."""
    gpus = [] if os.environ.get("DS_ACCELERATOR") == "cpu" else _gpus_of(command)
    if gpus:
        uuids = {gpu.index: gpu.uuid for gpu in gpus}
        return DevicePool(kind="gpu", indices=tuple(uuids), uuids=uuids)
    slots = DevicePool(kind="cpu", indices=())
    return DevicePool(kind="cpu", indices=tuple(range(command.ranks or default_ranks(slots))))


def named_gpus(devices: str | None) -> Collection[int]:
    """The GPUs that somebody has named."""
    with contextlib.suppress(DsoptError):  # such as a GPU that has failed since
        if devices is not None and (pool := parse_devices(devices)).kind == "gpu":
            return pool.indices
    return ()


def _gpus_of(command: LaunchCommand) -> list[Gpu]:
    """The first that its ranks see. DeepSpeed's launcher looks at CUDA_VISIBLE_DEVICES only without other choices."""
    everything = installed_gpus()
    if command.launcher.include:
        included, excluded = command.chosen_gpus
        if included is not None or excluded:
            return [g for g in everything if g.index not in excluded and (included is None or g.index in included)]
        if command.ranks is not None:
            return everything[: command.ranks]
    if command.visible_gpus is None:
        return visible_gpus()[: command.ranks]
    named = [[gpu for gpu in everything if gpu.is_named(name)] for name in command.visible_gpus]
    return [gpu for found in named for gpu in found][: command.ranks]
