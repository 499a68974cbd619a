"""All checks, one after the other: what is quick and what stops most comes first."""

from collections.abc import Callable, Iterator
from typing import Final

from dsopt.doctor import arguments, devices, disks, hosts, limits, moved_files, operators, packages, ranks
from dsopt.doctor.check import Check, guarded, problem, skipped
from dsopt.doctor.storage import STORAGE, check_storage
from dsopt.doctor.study import COMMAND, CONFIGURATION, ReadStudy, check_command, check_configuration, read_study
from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.launch.placers.placer import ChoosingPlacer
from dsopt.launch.training import training_of
from dsopt.study.spec import StudySpec

_SLOW: Final = (packages.NAME, operators.NAME, ranks.NAME)


def checks(
    read: ReadStudy | None, storage: Callable[[], str], names: str | None, engine: tuple[str, str] | None = None
) -> Iterator[Check]:
    """What all checks find, as they find it. They change nothing, and one that fails does not end the others.

    Args:
        read: reads the study to check; None: only the machine and the storage.
        storage: gives the URL of the database.
        names: the devices that runs may use, as a person writes them.
        engine: the name of a placer whose nodes runs may use, and its text.
    """
    reading = read_study(read)
    spec = reading.spec
    yield from guarded(COMMAND, check_command, reading)
    yield from guarded(CONFIGURATION, check_configuration, reading)
    is_wrong = bool(reading.mistakes)
    for one in guarded(arguments.NAME, arguments.check_arguments, spec) if spec is not None else ():
        is_wrong = is_wrong or one.status == "problem"
        yield one
    if spec is None:
        yield skipped(arguments.NAME, reading.why_none)
    yield from guarded(STORAGE, check_storage, storage)
    found = devices.find_devices(names, engine)
    yield from guarded(devices.GPUS, devices.check_devices, found)
    if spec is not None:
        yield from guarded(devices.NODE, devices.check_place, spec, found.pool)
        yield from guarded(hosts.NAME, hosts.check_hosts, spec, found.pool)
        yield from guarded(moved_files.NAME, moved_files.check_moved_files, spec)
    else:
        yield from (skipped(name, reading.why_none) for name in (devices.NODE, hosts.NAME, moved_files.NAME))
    yield from guarded(disks.NAME, disks.check_disks, spec, found.pool)
    yield from guarded(limits.LOCKS, limits.check_locks)
    yield from guarded(limits.MEMORY, limits.check_locked_memory, spec, found.pool)
    yield from guarded(limits.FILES, limits.check_open_files)
    yield from guarded(limits.SPACE, limits.check_address_space)
    if is_wrong:
        why = "the study or its command has mistakes: correct them first, since this takes minutes"
        yield from (skipped(name, why) for name in _SLOW)
    else:
        yield from _training(spec, found.pool)


def _training(spec: StudySpec | None, pool: DevicePool | None) -> Iterator[Check]:
    """What is checked by starting programs where the command trains."""
    later = _SLOW[1:]
    if spec is not None and spec.is_simulated:
        yield from (skipped(name, "a dry run starts no training") for name in (packages.NAME, *later))
        return
    try:
        training = training_of(spec)
    except (DsoptError, OSError) as error:
        yield problem(packages.NAME, str(error))
        yield from (skipped(name, "the training environment is not known") for name in later)
        return
    works = True
    engine = pool.placer if pool is not None and isinstance(pool.placer, ChoosingPlacer) else None
    for one in guarded(packages.NAME, packages.check_packages, training, spec, pool if engine is None else None):
        works = works and one.status != "problem"
        yield one
    if not works:
        yield from (skipped(name, "torch or DeepSpeed cannot be used") for name in later)
        return
    if engine is not None:
        yield from (skipped(name, f"runs are on nodes that {engine.name} chooses") for name in later)
        return
    yield from guarded(operators.NAME, operators.check_operators, training, spec, pool)
    yield from guarded(ranks.NAME, ranks.check_all_reduce, training, pool)
