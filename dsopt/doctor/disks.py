"""Free space where runs write: results, shared memory, compiled operators."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsopt.doctor.check import Check, ok, problem, warning
from dsopt.launch.devices import DevicePool, default_ranks
from dsopt.launch.leftovers import extensions_cache
from dsopt.study.quantity import gib
from dsopt.study.spec import StudySpec

NAME: Final = "disk"
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory lies on Linux
_RANK_BYTES: Final = 69 << 20  # what a rank on the CPU has there, for DeepSpeed's all-reduce
_GPU_BYTES: Final = 1 << 30  # NCCL's segments, and the batches of data loaders
_RESULTS_BYTES, _LEAST_RESULTS_BYTES = 1 << 30, 16 << 20
_CACHE_BYTES, _LEAST_CACHE_BYTES = 512 << 20, 64 << 20


def check_disks(spec: StudySpec | None, pool: DevicePool | None) -> Iterator[Check]:
    """Free space for results, in shared memory, and in torch's cache of extensions."""
    results = Path(spec.cwd) / spec.results_dir if spec is not None else Path.cwd()
    yield _folder("results", results, _RESULTS_BYTES, _LEAST_RESULTS_BYTES, "results_dir: FOLDER under autotuning")
    yield _shared_memory(spec, pool)
    cache = extensions_cache()
    yield _folder("torch's extension cache", cache, _CACHE_BYTES, _LEAST_CACHE_BYTES, "TORCH_EXTENSIONS_DIR=FOLDER")


def first_folder(path: Path) -> Path:
    """The nearest that exists of a path and what is above it."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def may_write(folder: Path) -> bool:
    """Whether this user may create files in a folder."""
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _folder(what: str, path: Path, enough: int, least: int, elsewhere: str) -> Check:
    folder = first_folder(path)
    if not folder.is_dir() or not may_write(folder):
        wrong = "is a file" if not folder.is_dir() else "cannot be written to"
        return problem(NAME, f"{what}: {folder} {wrong}", f"Use another folder: {elsewhere}")
    free = shutil.disk_usage(folder).free
    told = f"{what}: {gib(free)} free for {path}"
    if free < least:
        return problem(NAME, told, f"Make room, or use another disk: {elsewhere}")
    return warning(NAME, told, f"Make room, or use another disk: {elsewhere}") if free < enough else ok(NAME, told)


def _shared_memory(spec: StudySpec | None, pool: DevicePool | None) -> Check:
    if not _SHARED_MEMORY.is_dir():
        return warning(NAME, f"shared memory: there is no {_SHARED_MEMORY}", "Mount a tmpfs there")
    free = shutil.disk_usage(_SHARED_MEMORY).free
    told = f"shared memory: {gib(free)} free in {_SHARED_MEMORY}"
    fix = f"Remove what nobody uses in {_SHARED_MEMORY}; start a container with --shm-size=8g"
    if pool is None or pool.kind == "gpu":
        return warning(NAME, told, fix) if free < _GPU_BYTES else ok(NAME, told)
    ranks = (spec.resources.ranks if spec is not None else None) or default_ranks(pool)
    needed = ranks * _RANK_BYTES
    if free < needed:
        return problem(NAME, f"{told}; {ranks} ranks on the CPU need {gib(needed)}", fix)
    return ok(NAME, told)
