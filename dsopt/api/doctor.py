"""Finds out what is wrong with a machine, a storage and a study before anything runs."""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dsopt.api.creating import spec_of_command
from dsopt.api.storage import chosen_storage
from dsopt.doctor.check import Check as Check
from dsopt.doctor.diagnosis import checks
from dsopt.study.load import load_spec
from dsopt.study.spec import StudySpec


def diagnose(
    source: str | os.PathLike[str] | None = None,
    *,
    command: Sequence[str] | None = None,
    storage: str | None = None,
    devices: str | None = None,
    engine: tuple[str, str] | None = None,
) -> list[Check]:
    """Checks this machine, the storage, and a study if one is given. It changes nothing.

        wrong = [check for check in dsopt.diagnose("my-study.yaml") if check.status == "problem"]

    It starts small programs in the training environment, for a minute or two if an operator of DeepSpeed's has to be
    compiled, so do not call it on a machine that measures.

    Args:
        source: a study file.
        command: instead of `source`, the launch command, word by word.
        storage: URL of the database; by default as for `create_study`.
        devices: those that runs may use, as for `Study.start_worker`.
        engine: whose nodes runs may use, and what it is given, such as `("hostfile", "hosts")` or `("slurm", "")`.

    Returns:
        What each check found: its name, status (`ok`, `warning`, `problem` or `skipped`), message and fix.

    Raises:
        TypeError: both `source` and `command` are given.
    """
    return list(begin_diagnosis(source, command=command, storage=storage, devices=devices, engine=engine))


def begin_diagnosis(
    source: str | os.PathLike[str] | None = None,
    *,
    command: Sequence[str] | None = None,
    storage: str | None = None,
    devices: str | None = None,
    engine: tuple[str, str] | None = None,
) -> Iterator[Check]:
    """As `diagnose`, but gives what each check found as soon as it has."""
    if source is not None and command is not None:
        raise TypeError("diagnose takes a study file or command=[...], not both.")
    read: Callable[[], tuple[StudySpec, list[str]]] | None = None
    if source is not None:
        read = functools.partial(load_spec, Path(source))
    elif command is not None:
        read = functools.partial(spec_of_command, command, {})
    return checks(read, lambda: chosen_storage(storage), devices, engine)
