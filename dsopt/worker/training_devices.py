"""The devices of a training: which its command takes, and for whom it has to wait there."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool, default_ranks, is_this_node, named_indices, visible_gpus
from dsopt.launch.gpus import Gpu, installed_gpus, used_by
from dsopt.launch.saved import weights_in
from dsopt.launch.strangers import DRIVER_SILENT, SILENT_SECONDS, STAYED_SECONDS, Strangers
from dsopt.launch.told import told
from dsopt.launch.undone import undo_left
from dsopt.protocol.events import Moved, Saved
from dsopt.protocol.run_dir import RunDir
from dsopt.store.burying import Burying
from dsopt.store.heartbeat import LEASE_SECONDS
from dsopt.store.leases import Request, count_free_after_all, taken_of
from dsopt.store.studies import Store
from dsopt.store.trouble import database_error, is_away
from dsopt.store.who_works import folders_of_runs
from dsopt.store.workers import registration
from dsopt.study.command import LaunchCommand
from dsopt.study.host_file import USUAL_HOST_FILE, hosts_of


class Waiting:
    """For whom a training has to wait. What dead workers left is freed and undone here, whoever else works.

    Args:
        store: the storage of whose runs it knows.
        pool: the devices; on those that are shared, programs that are no runs of dsopt do not matter.
        others: its devices of other nodes, by node.
        tell: told if the driver of the GPUs does not answer.
    """

    def __init__(
        self,
        store: Store,
        pool: DevicePool,
        tell: Callable[[str], object],
        others: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self._store, self._pool, self._others = store, pool, others or {}
        self._me = registration()
        self._burying = Burying(store.engine, pool)
        self._may_bury_at = -math.inf
        self._failed: set[Path] = set()  # folders of runs that the last look could not undo
        self._strangers = Strangers(pool, lambda: tell(DRIVER_SILENT))

    def for_files(self, results: Path, working: Path) -> str | None:
        """Why what runs have done to the user's files is not undone yet; None: it is.

        Args:
            results: the results folder of the study's runs.
            working: the folder that the training works in, where runs of other studies may save, too.

        Raises:
            DsoptError: something cannot be undone.
        """
        return self._unless_away(lambda: self._files(results) or self._elsewhere(working))

    def for_devices(self) -> str | None:
        """Why the devices are not free; None: they are."""
        return self._unless_away(self._devices)

    def _files(self, results: Path) -> str | None:
        remains = undo_left(results, for_training=True)
        if remains.waiting:
            self._bury()
            remains = undo_left(results, for_training=True)
        if failed := {*remains.failed} & self._failed:  # twice: nobody is undoing it now
            raise DsoptError(
                f"the training does not begin: what the run in {min(failed)} has changed in your files could not be "
                "undone. 'dsopt doctor' shows what waits where; if a disk is full, make room, and try again."
            )
        self._failed = {*remains.failed}
        left = (*remains.waiting, *remains.failed)
        if not left:
            return None
        return f"the run in {left[0]} goes on, or another one uses what it has left"

    def _elsewhere(self, working: Path) -> str | None:
        if self._saved_elsewhere(working) is None:
            return None
        self._bury()  # its worker may be dead, and no other one work on its study
        return self._saved_elsewhere(working)

    def _saved_elsewhere(self, working: Path) -> str | None:
        """Whether runs of other studies, on whatever machine, have saved or moved something in a working folder."""
        with self._store.engine.connect() as connection:
            folders = folders_of_runs(connection)
        for run_dir in map(RunDir, folders):
            events: list[Moved | Saved] = [*told(run_dir, Moved), *weights_in(told(run_dir, Saved))]
            if any(Path(event.path).is_relative_to(working) for event in events) and run_dir.may_go_on:
                return f"the run in {run_dir.path} goes on, and saves in this folder"
        return None

    def _devices(self) -> str | None:
        if not self._are_free():
            self._bury()
            if not self._are_free():
                return f"runs of dsopt on {self._pool} have not ended ('dsopt workers' shows them)"
        with self._store.engine.connect() as connection:
            taken = taken_of(connection, self._pool.kind, self._others)
        if taken:
            return f"runs of dsopt on node '{taken[0]}' have not ended ('dsopt workers' shows them)"
        used = self._strangers.on(self._pool.indices, patience=SILENT_SECONDS)
        if used:  # the driver may still list a process that has just ended
            time.sleep(STAYED_SECONDS)
            used = self._strangers.on(self._pool.indices, age=0.0)
        if not used:
            return None
        who = "; ".join(used_by(index, users) for index, users in used.items())
        return f"{who} (with --devices {','.join(map(str, self._pool.indices))}, it would train beside that)"

    def _are_free(self) -> bool:
        request = Request(pool=self._pool, count=0)
        return count_free_after_all(self._store.engine, self._me.node, request) == len(self._pool.indices)

    def _bury(self) -> None:
        with self._store.engine.connect() as connection:
            seen = self._burying.look(connection, self._me)
        try:
            self._burying.see_to(seen, self._me, may_bury=time.monotonic() >= self._may_bury_at)
        except OSError:
            return  # such as a full disk; whoever looks next tries it again
        except Exception as error:
            if is_away(error) or database_error(error) is None:
                raise  # else, this user may only read it

    def _unless_away(self, find: Callable[[], str | None]) -> str | None:
        try:
            return find()
        except Exception as error:
            if not is_away(error):
                raise
            self._burying = Burying(self._store.engine, self._pool)
            self._may_bury_at = time.monotonic() + LEASE_SECONDS  # workers could not beat either
            return f"{self._store.shown_url} cannot be reached: {database_error(error) or error}"


def others_of(command: LaunchCommand, working: Path) -> Mapping[str, Sequence[int]]:
    """The devices that a command takes of other nodes, by node, as its host file names them.

    Raises:
        DsoptError: the host file cannot be used.
    """
    if not command.uses_hostfile or (command.hostfile is None and not Path(USUAL_HOST_FILE).exists()):
        return {}
    hosts = hosts_of(command, working, "the training")
    return {node: indices for node, indices in hosts.items() if not is_this_node(node)}


def devices_of(command: LaunchCommand, devices: str | None = None) -> DevicePool:
    """The devices of this node that a command takes.

    Args:
        command: the command.
        devices: names GPUs, as for a worker, that somebody takes though others use them.

    Raises:
        DsoptError: it names none; or the driver does not work.
    """
    gpus = [] if os.environ.get("DS_ACCELERATOR") == "cpu" else _gpus_of(command)
    if gpus:
        uuids = {gpu.index: gpu.uuid for gpu in gpus}
        is_named = devices is not None and not devices.startswith("cpu:")
        named = named_indices(devices) if devices is not None and is_named else set[int]()
        return DevicePool(kind="gpu", indices=tuple(uuids), uuids=uuids, shared=frozenset(named))
    slots = DevicePool(kind="cpu", indices=())
    return DevicePool(kind="cpu", indices=tuple(range(command.ranks or default_ranks(slots))))


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
