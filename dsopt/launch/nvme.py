"""Measures the folder that DeepSpeed will offload to, for the `aio` section of its configuration."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.launch.leftovers import remove_stale_build_locks
from dsopt.launch.program import path_with
from dsopt.study.own_programs import own_environment, own_program

_MEGABYTES = 256
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


def measure_nvme(folder: Path, python: str | None = None) -> NvmeMeasurement:
    """Measures a folder with the DeepSpeed of `python`, by default dsopt's own Python. Leaves nothing in the folder.

    It takes some ten seconds, or minutes if DeepSpeed must first compile its op on this machine.

    Raises:
        DsoptError: the folder is missing, cannot be written or is too full; DeepSpeed's op cannot be built or used.
    """
    _check(folder)
    remove_stale_build_locks()  # DeepSpeed would wait for them
    program = python or sys.executable
    code, output, errors = _run(
        own_program("dsopt.probe.aio", str(folder), "--megabytes", str(_MEGABYTES), python=program), folder
    )
    if code != 0:
        reason = (errors.strip() or f"it ended with exit code {code}").splitlines()[-1]
        raise DsoptError(f"nvme_path: cannot measure '{folder}': {reason}")
    try:
        answer = json.loads(output)
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
        raise DsoptError(
            f"nvme_path: cannot write to '{folder}' ({error.strerror}). Change its permissions, or name another folder."
        ) from None
    free = shutil.disk_usage(folder).free
    if free < _MEGABYTES * 2**20:
        raise DsoptError(
            f"nvme_path: '{folder}' has {free / 2**20:.0f} MiB of free space. Measuring needs {_MEGABYTES} MiB, "
            "and offloading far more. Make room, or name a folder on another disk."
        )


def _run(argv: tuple[str, ...], folder: Path) -> tuple[int, str, str]:
    """Runs the program to its end: exit code, standard output, standard error."""
    try:
        process = subprocess.Popen(
            argv,
            env={**own_environment(), "PATH": path_with(os.environ, Path(argv[0]))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise DsoptError(f"nvme_path: cannot start '{argv[0]}' to measure the disk: {error.strerror}.") from None
    with process:
        try:
            output, errors = process.communicate(timeout=_TIMEOUT_SECONDS)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # with the compiler it may have started
            if isinstance(error, subprocess.TimeoutExpired):
                raise DsoptError(
                    f"nvme_path: measuring '{folder}' took more than {_TIMEOUT_SECONDS:.0f} s. Is the disk healthy? "
                    f"Run '{argv[0]} -m dsopt.probe.aio {folder}' to see how far it gets."
                ) from None
            raise
    return process.returncode, output, errors


def _speed(setting: dict[str, object]) -> AioSpeed:
    return AioSpeed(**{name: setting[name] for name in AioSpeed.__slots__})  # type: ignore[arg-type]
