"""Measures the folder that DeepSpeed will offload to, for the `aio` section of its configuration."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError, Interrupted
from dsopt.launch.leftovers import remove_stale_build_locks
from dsopt.launch.limited import Ended, Program, run_all
from dsopt.launch.passing import PassingError, refusal
from dsopt.launch.program import path_with
from dsopt.protocol.run_dir import WORKERS_RUN_DIR_VARIABLE
from dsopt.study.own_programs import own_environment, own_program

_MEGABYTES = 256
ROOM_BYTES: Final = _MEGABYTES << 20  # without which nothing is measured
_TIMEOUT_SECONDS = (
    600.0  # measuring takes seconds; compiling DeepSpeed's op the first time took five minutes on two busy cores
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AioSpeed:
    """What one `aio` section reached, medians of its transfers."""

    aio: dict[str, int | bool]
    read_bytes_per_second: float
    write_bytes_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmeMeasurement:
    """The speed of a folder's file system under DeepSpeed's asynchronous I/O.

    Attributes:
        aio: the `aio` section to use, under the keys that the installed DeepSpeed reads.
        read_bytes_per_second: what it reached.
        write_bytes_per_second: what it reached.
        direct: whether the data bypassed the page cache; if not (tmpfs), the speeds are those of memory.
        settings: every setting that was measured.
    """

    aio: dict[str, int | bool]
    read_bytes_per_second: float
    write_bytes_per_second: float
    direct: bool
    settings: tuple[AioSpeed, ...]


def measure_nvme(
    folder: Path,
    python: str | None = None,
    *,
    run_dir: Path | None = None,
    should_end: Callable[[], bool] = lambda: False,
) -> NvmeMeasurement:
    """Measures a folder with the DeepSpeed of `python`, by default dsopt's own Python. Leaves nothing in the folder.

    It takes some ten seconds, or minutes if DeepSpeed must first compile its op on this machine.

    Args:
        folder: on the disk.
        python: the program.
        run_dir: that of the run which it is done for: the processes are then found as the run's.
        should_end: asked meanwhile whether to give up.

    Raises:
        DsoptError: the folder is missing, cannot be written or is too full; DeepSpeed's op cannot be built or used. It
            is a `PassingError` if this may go well at another time.
        Interrupted: it was given up.
    """
    _check(folder)
    remove_stale_build_locks()  # DeepSpeed would wait for them
    program = python or sys.executable
    argv = own_program("dsopt.probe.aio", str(folder), "--megabytes", str(_MEGABYTES), python=program)
    ended = _run(argv, folder, run_dir, should_end)
    if ended.code != 0:
        kind = PassingError if ended.code is not None and ended.code < 0 else DsoptError  # somebody has killed it
        raise kind(f"nvme_path: cannot measure '{folder}': {ended.last_words}")
    try:
        answer = json.loads(ended.output)
        return NvmeMeasurement(**{**answer, "settings": tuple(_speed(setting) for setting in answer["settings"])})
    except (ValueError, TypeError, KeyError):
        raise DsoptError(
            f"nvme_path: cannot measure '{folder}': '{program} -m dsopt.probe.aio' did not print a measurement. "
            "Is the same dsopt installed there?"
        ) from None


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise DsoptError(f"nvme_path: '{folder}' is not a folder. Create it on the NVMe disk, or name another.")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise refusal(
            f"nvme_path: cannot write to '{folder}' ({error.strerror}). Change its permissions, or name another "
            "folder.",
            error,
        ) from None
    free = shutil.disk_usage(folder).free
    if free < _MEGABYTES * 2**20:
        raise PassingError(
            f"nvme_path: '{folder}' has {free / 2**20:.0f} MiB of free space. Measuring needs {_MEGABYTES} MiB, "
            "and offloading far more. Make room, or name a folder on another disk."
        )


def _run(argv: tuple[str, ...], folder: Path, run_dir: Path | None, should_end: Callable[[], bool]) -> Ended:
    """Runs the program to its end, or ends it with the compilers that it may have started."""
    environment = {**own_environment(), "PATH": path_with(os.environ, Path(argv[0]))}
    if run_dir is not None:
        environment[WORKERS_RUN_DIR_VARIABLE] = str(run_dir)
    program = Program(argv=argv, environment=environment, cwd=Path.cwd())
    try:
        found = run_all([program], seconds=_TIMEOUT_SECONDS, should_end=should_end)
    except OSError as error:
        message = f"nvme_path: cannot start '{argv[0]}' to measure the disk: {error.strerror}."
        raise refusal(message, error) from None
    if not found or (found[0].code is None and should_end()):
        raise Interrupted
    if found[0].code is None:
        raise PassingError(
            f"nvme_path: measuring '{folder}' took more than {_TIMEOUT_SECONDS:.0f} s. Is the disk healthy? "
            f"Run '{argv[0]} -m dsopt.probe.aio {folder}' to see how far it gets."
        )
    return found[0]


def _speed(setting: dict[str, object]) -> AioSpeed:
    return AioSpeed(**{name: setting[name] for name in AioSpeed.__slots__})  # type: ignore[arg-type]
