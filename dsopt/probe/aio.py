"""Measures a folder for DeepSpeed's offload to NVMe: `python -m dsopt.probe.aio FOLDER [--megabytes 256]`.

It moves data with DeepSpeed's own `async_io` op, as DeepSpeed's swapper does, and prints one JSON object with the `aio`
section that is fastest there. The scratch file has no name, so nothing stays in the folder however the program ends.
"""

import argparse
import ctypes
import json
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

_MIB = 2**20
_ROUNDS = 3
_BUDGET_SECONDS = 6.0
_LEAST_TRANSFER_BYTES = 32 * _MIB
# Settings this close to the fastest count as equal, since disks vary; the one that asks for least wins.
_TIE = 1.1
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """DeepSpeed's `aio` section, with the names that 0.19 gives its keys; `block_size` in bytes."""

    block_size: int
    queue_depth: int
    intra_op_parallelism: int
    single_submit: bool = False
    overlap_events: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What one setting reached: seconds of each write and each read of `transfer_bytes`, in the order measured."""

    transfer_bytes: int
    write_seconds: list[float]
    read_seconds: list[float]

    @property
    def write_bytes_per_second(self) -> float:
        return self.transfer_bytes / statistics.median(self.write_seconds)

    @property
    def read_bytes_per_second(self) -> float:
        return self.transfer_bytes / statistics.median(self.read_seconds)

    @property
    def seconds_per_byte(self) -> float:
        """Of a byte that is written and read back, as every byte of an optimizer's state is in a step."""
        return 1 / self.write_bytes_per_second + 1 / self.read_bytes_per_second


# What asks for least comes first, which is DeepSpeed's default. Blocks above 1 MiB come late, because DeepSpeed keeps
# tensors that are smaller than a block in memory.
SHAPES = (
    Setting(block_size=_MIB, queue_depth=8, intra_op_parallelism=1),
    Setting(block_size=_MIB, queue_depth=32, intra_op_parallelism=1),
    Setting(block_size=_MIB, queue_depth=32, intra_op_parallelism=2),
    Setting(block_size=_MIB, queue_depth=32, intra_op_parallelism=4),
    Setting(block_size=_MIB, queue_depth=32, intra_op_parallelism=8),
    Setting(block_size=_MIB // 4, queue_depth=128, intra_op_parallelism=4),
    Setting(block_size=8 * _MIB, queue_depth=8, intra_op_parallelism=2),
    Setting(block_size=8 * _MIB, queue_depth=32, intra_op_parallelism=4),
)


def main() -> None:
    """Prints the measurement of the folder in `sys.argv`, or says on standard error why there is none (exit code 1)."""
    parser = argparse.ArgumentParser(
        prog="python -m dsopt.probe.aio", description="Measures a folder for NVMe offload."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=int, default=256, help="size of the scratch file, and most of one transfer")
    arguments = parser.parse_args()
    if arguments.megabytes < 1:
        parser.error("--megabytes: expected 1 or more")
    # libraries, and the compiler of the op, print to standard output, too, but ours must contain only the answer
    answer = os.dup(1)
    os.dup2(2, 1)
    result = measure(arguments.folder, arguments.megabytes * _MIB)
    with os.fdopen(answer, "w", encoding="utf-8") as output:
        json.dump(result, output)
        output.write("\n")


def measure(folder: Path, scratch_bytes: int) -> dict[str, object]:
    """The fastest of our settings on the folder's file system, with all that were measured.

    `scratch_bytes` is a multiple of 1 MiB, which any number of threads in `SHAPES` divides into whole pages.

    Raises:
        SystemExit: with a message, if the op is not available, or the folder has no room for the file.
    """
    op = load_op()
    with scratch_file(folder, scratch_bytes) as file:
        disk = Disk(op, file, scratch_bytes)
        disk.transfer(SHAPES[0], scratch_bytes)  # lays out the file, so that later writes need not
        direct = not is_cached(file, scratch_bytes)
        seconds = sum(disk.transfer(SHAPES[0], min(_LEAST_TRANSFER_BYTES, scratch_bytes)))
        transfer_bytes = affordable_bytes(seconds, scratch_bytes)
        speeds = race(disk, SHAPES, transfer_bytes)
        shape = choose(speeds)
        variants = (shape, replace(shape, single_submit=True), replace(shape, overlap_events=False))
        finals = race(disk, variants, transfer_bytes)
    best = choose(finals)
    return {
        "aio": aio_section(best),
        "read_bytes_per_second": finals[best].read_bytes_per_second,
        "write_bytes_per_second": finals[best].write_bytes_per_second,
        "direct": direct,
        "settings": [
            {
                "aio": aio_section(setting),
                "read_bytes_per_second": speed.read_bytes_per_second,
                "write_bytes_per_second": speed.write_bytes_per_second,
                **asdict(speed),
            }
            for setting, speed in {**speeds, **finals}.items()
        ],
    }


def aio_section(setting: Setting) -> dict[str, int | bool]:
    """The setting under the keys that the installed DeepSpeed reads: 0.16 calls the threads `thread_count`."""
    from deepspeed.runtime.swap_tensor.aio_config import AIO_DEFAULT_DICT

    section = asdict(setting)
    if "thread_count" in AIO_DEFAULT_DICT:
        section["thread_count"] = section.pop("intra_op_parallelism")
    return section


def load_op() -> Any:  # noqa: ANN401 - an extension module, which has no types
    """DeepSpeed's `async_io` extension, which it compiles on its first use on the machine."""
    try:
        from deepspeed.accelerator import get_accelerator
        from deepspeed.git_version_info import installed_ops
    except ImportError as error:
        raise SystemExit(f"DeepSpeed cannot be imported: {error}") from None
    builder = get_accelerator().create_op_builder("AsyncIOBuilder")
    try:
        if builder is not None and (installed_ops.get(builder.NAME) or builder.is_compatible(verbose=False)):
            return builder.load(verbose=False)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        cause = next((line for line in lines if "error:" in line), lines[0] if lines else repr(error))
        raise SystemExit(f"DeepSpeed's async_io op cannot be built: {cause.strip()}") from None
    raise SystemExit(
        "DeepSpeed's async_io op cannot be built: a test program with libaio does not link. Install a C++ compiler and "
        "libaio with its headers (package libaio-dev on Debian and Ubuntu, libaio-devel on Fedora and Red Hat)."
    )


def scratch_file(folder: Path, scratch_bytes: int) -> IO[bytes]:
    """A file in the folder that has its room already and no name, so that the kernel removes it with its last user."""
    try:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - the caller closes it
        os.posix_fallocate(file.fileno(), 0, scratch_bytes)
        os.close(os.open(path_of(file), os.O_RDWR | os.O_DIRECT))
    except OSError as error:
        raise SystemExit(
            f"{folder}: cannot write a file of {scratch_bytes // _MIB} MiB there with O_DIRECT: {error.strerror}"
        ) from None
    return file


def path_of(file: IO[bytes]) -> str:
    """A path under which this process can open the file again though it has no name."""
    return f"/proc/self/fd/{file.fileno()}"


class Disk:
    """Moves data between page-locked memory and the scratch file with DeepSpeed's op, and times it."""

    def __init__(self, op: Any, file: IO[bytes], scratch_bytes: int) -> None:  # noqa: ANN401
        self._op = op
        self._path = path_of(file)
        self._handles: dict[Setting, Any] = {}
        self._source = self._page_locked(scratch_bytes)
        self._target = self._page_locked(scratch_bytes)
        self._source.random_(0, 256)  # some file systems and drives compress
        self._target.zero_()

    def transfer(self, setting: Setting, transfer_bytes: int) -> tuple[float, float]:
        """Writes the first bytes of the file and reads them back: seconds of each.

        To the op a failed request looks like a fast one, so this checks every page that it reads.
        """
        handle = self._handle(setting)
        source, target = self._source[:transfer_bytes], self._target[:transfer_bytes]
        source[:: mmap.PAGESIZE] += 1  # so that no page equals what the file or the target already has
        write_seconds = self._timed(handle, handle.pwrite, source)
        read_seconds = self._timed(handle, handle.pread, target)
        if not bool((source[:: mmap.PAGESIZE] == target[:: mmap.PAGESIZE]).all()):
            raise SystemExit(f"the data read back with {setting} differ from those written")
        return write_seconds, read_seconds

    def _timed(self, handle: Any, operation: Any, buffer: Any) -> float:  # noqa: ANN401
        started = time.perf_counter()
        if operation(buffer, self._path, False, True) == -1:  # do not validate, do not wait
            raise SystemExit("DeepSpeed's async_io op could not open the scratch file")
        handle.wait()
        return time.perf_counter() - started

    def _handle(self, setting: Setting) -> Any:  # noqa: ANN401
        if setting not in self._handles:
            self._handles[setting] = self._op.aio_handle(
                setting.block_size,
                setting.queue_depth,
                setting.single_submit,
                setting.overlap_events,
                setting.intra_op_parallelism,
            )
        return self._handles[setting]

    def _page_locked(self, count: int) -> Any:  # noqa: ANN401
        """Bytes as training has them: pinned by the accelerator, or on the CPU locked by the op itself."""
        import torch
        from deepspeed.accelerator import get_accelerator

        if get_accelerator().device_name() != "cpu":
            return get_accelerator().pin_memory(torch.empty(count, dtype=torch.uint8))
        if not may_lock(count):  # the op would abort the process
            raise SystemExit(
                f"cannot lock {count // _MIB} MiB of memory, which DeepSpeed's async_io op needs: "
                "raise the limit ('ulimit -l unlimited', or memlock in limits.conf)"
            )
        return self._handle(SHAPES[0]).new_cpu_locked_tensor(count, torch.empty(0, dtype=torch.uint8))


def race(disk: Disk, settings: Sequence[Setting], transfer_bytes: int) -> dict[Setting, Speed]:
    """Measures settings in turn, every other round backwards, so that a drift of the disk affects all of them alike."""
    speeds = {s: Speed(transfer_bytes=transfer_bytes, write_seconds=[], read_seconds=[]) for s in settings}
    for number in range(_ROUNDS):
        for setting in settings if number % 2 == 0 else reversed(settings):
            write_seconds, read_seconds = disk.transfer(setting, transfer_bytes)
            speeds[setting].write_seconds.append(write_seconds)
            speeds[setting].read_seconds.append(read_seconds)
    return speeds


def choose(speeds: dict[Setting, Speed]) -> Setting:
    """The first setting that is as good as the fastest."""
    least = min(speed.seconds_per_byte for speed in speeds.values())
    return next(setting for setting, speed in speeds.items() if speed.seconds_per_byte <= _TIE * least)


def affordable_bytes(seconds: float, scratch_bytes: int) -> int:
    """Bytes of one transfer with which all transfers take about the budget, if the smallest one took `seconds`."""
    least = min(_LEAST_TRANSFER_BYTES, scratch_bytes)
    transfers = _ROUNDS * (len(SHAPES) + 3)
    wanted = int(least * _BUDGET_SECONDS / (transfers * seconds))
    return max(least, min(scratch_bytes, wanted)) // _MIB * _MIB


def is_cached(file: IO[bytes], count: int) -> bool:
    """Whether the first bytes of a file are in the page cache, which direct I/O bypasses."""
    pages = (ctypes.c_ubyte * (count // mmap.PAGESIZE))()
    with mmap.mmap(file.fileno(), count) as view:
        first = ctypes.c_char.from_buffer(view)
        failed = _LIBC.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(count), pages)
        del first  # a view that is looked at cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return sum(page & 1 for page in pages) > len(pages) // 100


def may_lock(count: int) -> bool:
    """Whether this process may lock this many more bytes in memory."""
    with mmap.mmap(-1, count) as memory:
        first = ctypes.c_char.from_buffer(memory)
        failed = _LIBC.mlock(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(count))
        del first
    return not failed


if __name__ == "__main__":
    main()
