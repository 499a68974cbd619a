"""Tunes a command in one call: creates its study, or continues it, and works on it here."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsopt.api.creating import keep, spec_of_command
from dsopt.api.events import Event
from dsopt.api.study import Study
from dsopt.api.workers import Devices, pool_of


def tune(
    command: Sequence[str],
    *,
    devices: Devices = None,
    name: str | None = None,
    take_over: str | None = None,
    storage: str | None = None,
    on_event: Callable[[Event], object] | None = None,
    **settings: Any,  # noqa: ANN401 - keys of the study file
) -> Study:
    """Tunes a launch command on this machine: creates its study, or continues it, and works on it until the end.

        study = dsopt.tune(["deepspeed", "--num_gpus", "8", "train.py", "--deepspeed_config", "ds.json"])
        print(study.best)

    Args:
        command: the launch command, word by word.
        devices: as for `Study.start_worker`.
        name, take_over, storage: as for `create_study`.
        on_event: called with each event, in this thread; an exception from it stops the worker.
        settings: further keys of the study file, such as `timeout_seconds=60`.

    Returns:
        The study, which is finished, or was stopped by somebody else.

    Raises:
        DsoptError: the study is not valid, or cannot continue before the user has fixed something.
    """
    pool = pool_of(devices)
    study = begin_tuning(command, {"name": name, **settings}, pool, take_over, storage)
    study.run(pool, on_event)
    return study


def begin_tuning(
    command: Sequence[str],
    settings: Mapping[str, Any],
    devices: Devices,
    earlier: str | None,
    storage: str | None,
) -> Study:
    """Creates the study of a command, or finds and resumes it; refuses it before that if it cannot run here."""
    study = keep(*spec_of_command(command, settings), earlier, storage, pool_of(devices))
    if not study.is_new:
        study.resume()
    return study
