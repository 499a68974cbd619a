"""The devices of the real training that `dsopt run` starts: no run of dsopt begins on them while it trains."""

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.launch.device_locks import DeviceLocks, release, reserve
from dsopt.launch.devices import DevicePool
from dsopt.launch.foreground import train
from dsopt.launch.outside import left_by, shown_paths, still_left
from dsopt.launch.put_back import still_away
from dsopt.launch.trainings import Mark
from dsopt.protocol.run_dir import RunDir
from dsopt.search.history import History
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.command import LaunchCommand
from dsopt.study.folders import results_folder
from dsopt.study.spec import StudySpec
from dsopt.worker.happenings import Happening, WorkerPaused
from dsopt.worker.history import load_history
from dsopt.worker.patience import Patience
from dsopt.worker.training_devices import Waiting, devices_of, others_of

_LOOK_SECONDS: Final = 1.0
_CLOCK_SECONDS: Final = 5.0  # that a file system's clock may be ahead
_NO_WEIGHTS: Final = (".npz", ".h5", ".msgpack", ".pkl")  # that nobody resumes from with PyTorch


def train_best(
    store: Store,
    study: StoredStudy,
    command: LaunchCommand,
    tell: Callable[[str], object],
    devices: str | None = None,
) -> int:
    """Runs a training to its end, on devices on which no run of dsopt begins meanwhile.

    Args:
        store: the storage of whose runs it knows.
        study: the study.
        command: the training.
        tell: told that it waits until others have left its files and devices, however long that takes.
        devices: names GPUs, as for a worker, on which programs that are no runs of dsopt do not matter.

    Returns:
        Its exit code.

    Raises:
        DsoptError: the launcher cannot be found; an experiment has left something (`check_leftovers`) or cannot be
            undone; or `devices` names none; or the host file
            cannot be used.
    """
    spec, tell_once = study.spec, _once(tell)
    patience = patient(tell)

    def check() -> None:
        history, finished_at = patience(lambda: (load_history(store, study), store.read(study.name).finished_at))
        check_leftovers(spec, history, finished_at, command)

    if spec.is_simulated:
        check()
        return train(command, Path(spec.cwd))
    pool = devices_of(command, devices)
    waiting = Waiting(store, pool, tell, others_of(command, Path(spec.cwd)))
    _wait(lambda: waiting.for_files(results_folder(spec), Path(spec.cwd)), tell_once)
    check()
    locks = DeviceLocks(patience(lambda: store.identity), store.shown_url)
    mark = Mark(script=command.script)
    try:
        files = _reserve(waiting, locks, pool, spec.cwd, mark, tell_once)
        try:
            _wait(lambda: waiting.for_files(results_folder(spec), Path(spec.cwd)), tell_once)
            check()  # again, since somebody may have run something meanwhile
            return train(command, Path(spec.cwd), files, mark, tell)
        finally:
            release(files)
    finally:
        locks.close()


def patient(tell: Callable[[str], object]) -> Patience:
    """Asks the database what a training must know, however long it is away, and tells that it waits."""
    return Patience(threading.Event(), lambda happening: _tell_of_pause(happening, tell))


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
    seen |= _left_by_earlier(spec, history)
    paths = [Path(spec.cwd) / path for path in sorted(seen) if not path.endswith(_NO_WEIGHTS)]
    latest = math.inf if until is None else until + _CLOCK_SECONDS
    left = [str(path.relative_to(spec.cwd)) for path in paths if path.exists() and path.stat().st_mtime <= latest]
    if left:
        raise DsoptError(
            f"the training does not begin: while experiments ran, {', '.join(left)} appeared or changed in {spec.cwd}, "
            f"and your script may go on from there. {_yours(spec)}Remove what an experiment has left, name its flag "
            f"with --isolate next time, and start the training yourself: {command}"
        )


def _left_by_earlier(spec: StudySpec, history: History) -> set[str]:
    """What runs of studies have left that this one took runs over from; of one that cannot be read, what it wrote."""
    taken, found = [o for o in history.everything if o.taken_over and o.run_dir], list[Path]()
    for folder in {Path(o.run_dir).parent for o in taken}:
        with contextlib.suppress(OSError):  # another user's
            found += still_left(folder)
    unread = [o.wrote_outside.split(", ") for o in taken if left_by(Path(o.run_dir)) is None]
    return {*shown_paths(Path(spec.cwd), found), *filter(None, itertools.chain.from_iterable(unread))}


def _yours(spec: StudySpec) -> str:
    """Where files of the user's still are that experiments had moved, in a sentence."""
    away = [event for path in results_folder(spec).iterdir() for event in still_away(RunDir(path))]
    named = [f"what was {event.path} before is in {event.to}" for event in away]
    return f"Of your own files, {', and '.join(named)}. Put them back first. " if named else ""


def _tell_of_pause(happening: Happening, tell: Callable[[str], object]) -> None:
    if isinstance(happening, WorkerPaused):
        tell(f"The training waits: {happening.why.rstrip('.')}. Ctrl-C gives up.")


def _once(tell: Callable[[str], object]) -> Callable[[str], object]:
    """Tells why a training waits, each reason once."""
    told = ""

    def tell_of(why: str) -> None:
        nonlocal told
        if why != told:
            tell(f"The training waits, because {why}. Ctrl-C gives up.")
            told = why

    return tell_of


def _wait(find_why: Callable[[], str | None], tell: Callable[[str], object]) -> None:
    while (why := find_why()) is not None:
        tell(why)
        time.sleep(_LOOK_SECONDS)


def _reserve(
    waiting: Waiting, locks: DeviceLocks, pool: DevicePool, cwd: str, mark: Mark, tell: Callable[[str], object]
) -> list[int]:
    """Waits for the devices. Returns the files that keep others off them."""
    while (files := _files_of(locks, pool, cwd, mark, tell)) is None:
        time.sleep(_LOOK_SECONDS)
    try:
        _wait(waiting.for_devices, tell)
    except BaseException:  # such as Ctrl-C in a notebook, which goes on
        release(files)
        raise
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
