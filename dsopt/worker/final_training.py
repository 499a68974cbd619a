"""The devices of the real training that `dsopt run` starts: no run of dsopt begins on them while it trains."""

import math
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.launch.device_locks import DeviceLocks, release, reserve
from dsopt.launch.devices import DevicePool, default_ranks, visible_gpus
from dsopt.launch.foreground import train
from dsopt.launch.gpus import Gpu, installed_gpus
from dsopt.launch.outside import shown_paths, still_left
from dsopt.launch.trainings import Mark
from dsopt.launch.undone import undo_left
from dsopt.search.history import History
from dsopt.store.identity import identity_of
from dsopt.store.leases import Request, count_free_after_all
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.trouble import database_error, is_away
from dsopt.study.command import LaunchCommand
from dsopt.study.folders import results_folder
from dsopt.study.spec import StudySpec
from dsopt.worker.happenings import Happening, WorkerPaused
from dsopt.worker.history import load_history
from dsopt.worker.patience import Patience

_LOOK_SECONDS: Final = 0.5
_CLOCK_SECONDS: Final = 5.0  # that a file system's clock may be ahead
_NO_WEIGHTS: Final = (".npz", ".h5", ".msgpack", ".pkl")  # that nobody resumes from with PyTorch


def train_best(store: Store, study: StoredStudy, command: LaunchCommand, tell: Callable[[str], object]) -> int:
    """Runs a training to its end, on devices on which no run of dsopt begins meanwhile.

    Args:
        store: the storage of whose runs it knows.
        study: the study.
        command: the training.
        tell: told that it waits until runs on its devices have ended, however long that takes.

    Returns:
        Its exit code.

    Raises:
        DsoptError: the launcher cannot be found, or `check_leftovers`.
    """
    spec, tell_once = study.spec, _once(tell)
    while not spec.is_simulated and undo_left(results_folder(spec), is_last=True):
        tell_once("what experiments have changed in your files is not put back yet ('dsopt doctor' shows what is left)")
        time.sleep(_LOOK_SECONDS)
    check_leftovers(spec, load_history(store, study), store.read(study.name).finished_at, command)
    if spec.is_simulated:
        return train(command, Path(spec.cwd))
    patience = Patience(threading.Event(), lambda happening: _tell_of_pause(happening, tell))
    locks = DeviceLocks(patience(lambda: identity_of(store.engine)), store.shown_url)
    mark = Mark(script=command.script)
    files = _reserve(store, locks, _devices_of(command), spec.cwd, mark, tell_once)
    try:
        return train(command, Path(spec.cwd), files, mark, tell)
    finally:
        locks.close()
        release(files)


def check_leftovers(spec: StudySpec, history: History, until: float | None, command: LaunchCommand) -> None:
    """Refuses to train while there is what a script may resume from, as experiments left it.

    Args:
        spec, history: of the study.
        until: the end of its experiments, since the epoch; what changed later is no experiment's.
        command: the training.

    Raises:
        DsoptError: there is.
    """
    seen = {*history.wrote_outside, *shown_paths(Path(spec.cwd), still_left(results_folder(spec)))}
    paths = [Path(spec.cwd) / path for path in sorted(seen) if not path.endswith(_NO_WEIGHTS)]
    latest = math.inf if until is None else until + _CLOCK_SECONDS
    left = [str(path.relative_to(spec.cwd)) for path in paths if path.exists() and path.stat().st_mtime <= latest]
    if left:
        raise DsoptError(
            f"the training does not begin: while experiments ran, {', '.join(left)} appeared or changed in {spec.cwd}, "
            "and your script may go on from there. Remove what an experiment has left, name its flag with --isolate "
            f"next time, and start the training yourself: {command}"
        )


def _tell_of_pause(happening: Happening, tell: Callable[[str], object]) -> None:
    if isinstance(happening, WorkerPaused):
        tell(f"The training waits: {happening.why.rstrip('.')}. Ctrl-C gives up.")


def _not_reached(store: Store, error: BaseException) -> str:
    return f"{store.shown_url} cannot be reached: {database_error(error) or error}"


def _once(tell: Callable[[str], object]) -> Callable[[str], object]:
    """Tells why a training waits, each reason once."""
    told = ""

    def tell_of(why: str) -> None:
        nonlocal told
        if why != told:
            tell(f"The training waits, because {why}. Ctrl-C gives up.")
            told = why

    return tell_of


def _reserve(
    store: Store, locks: DeviceLocks, pool: DevicePool, cwd: str, mark: Mark, tell: Callable[[str], object]
) -> list[int]:
    """Waits for the devices. Returns the files that keep others off them."""
    while (files := _files_of(locks, pool, cwd, mark, tell)) is None:
        time.sleep(_LOOK_SECONDS)
    while (why := _why_not_yet(store, pool)) is not None:
        tell(why)
        time.sleep(_LOOK_SECONDS)
    return files


def _files_of(
    locks: DeviceLocks, pool: DevicePool, cwd: str, mark: Mark, tell: Callable[[str], object]
) -> list[int] | None:
    """Keeps others off the devices. None if somebody has some of them: nothing is kept, or both would wait for ever."""
    try:
        locks.hold(pool)
    except DsoptError:
        tell(f"workers on another database use {pool}")
        return None
    try:
        return reserve(pool, cwd, mark)
    except DsoptError as error:
        locks.close()
        tell(str(error))
        return None


def _why_not_yet(store: Store, pool: DevicePool) -> str | None:
    try:
        free = count_free_after_all(store.engine, socket.gethostname(), Request(pool=pool, count=0))
    except Exception as error:
        if not is_away(error):
            raise
        return _not_reached(store, error)
    if free == len(pool.indices):
        return None
    return (
        f"runs of dsopt on {pool} have not ended ('dsopt workers' shows them; "
        "a worker that starts frees what dead ones left)"
    )


def _devices_of(command: LaunchCommand) -> DevicePool:
    """The devices of this node that a command takes."""
    gpus = [] if os.environ.get("DS_ACCELERATOR") == "cpu" else _gpus_of(command)
    if gpus:
        uuids = {gpu.index: gpu.uuid for gpu in gpus}
        return DevicePool(kind="gpu", indices=tuple(uuids), uuids=uuids)
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
