"""Imports modules before there is a rank, and checks that the process may be forked afterwards."""

import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsopt.probe.imported import imported_modules, is_standard
from dsopt.protocol.run_dir import RUN_VARIABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why ranks must not be forked from a process.

    Attributes:
        why: the reason, as a clause.
        since: a process that imports nothing of this module and those after it may be forked.
    """

    why: str
    since: str | None = None


def import_all(modules: Mapping[str, str]) -> Refusal | None:
    """Imports these modules, each from the given file. Returns why ranks must not be forked after that, or None.

    No module may come from the working directory, which is the user's, or read a variable that differs between runs.
    """
    there = set(sys.modules)  # what Python itself and this package import
    folder = sys.path.pop(0) if sys.path[0] in ("", str(Path.cwd())) else None
    watch = _EnvironmentWatch()
    name = first = ""  # the first module since the process was last seen to be fit
    try:
        for name in modules:
            first = first or name
            _import_if_found(name)
            if watch.seen:
                return Refusal(why=f"{name} reads the environment variable {watch.seen[0]} when it is imported")
            if "." not in name:
                if (why := unfit_to_fork()) is not None:
                    return Refusal(why=f"{why} ({first} … {name})", since=first)
                first = ""
    except BaseException as error:
        return Refusal(why=f"cannot import {name} beforehand: {type(error).__name__}: {error}")
    finally:
        watch.end()
        if folder is not None:
            sys.path.insert(0, folder)
    for name, file in imported_modules().items():
        if name not in there and not is_standard(file) and modules.get(name) != file:
            return Refusal(
                why=f"{name} would come from {file} if imported beforehand, but the script does not import it from "
                "there"
            )
    why = unfit_to_fork()
    return None if why is None else Refusal(why=why)


def _import_if_found(name: str) -> None:
    """Imports a module, unless only the package that contains it can find it, as with those of setuptools."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            raise


def unfit_to_fork() -> str | None:
    """Why a fork of this process would not be like a new process, or None."""
    torch = sys.modules.get("torch")
    if (torch is not None and torch.cuda.is_initialized()) or "/dev/nvidia-uvm" in _open_files():
        return "an import has initialised CUDA, which does not survive a fork"
    threads = _threads()
    if len(threads) > 1:
        _end_threads_that_a_fork_ends()
        threads = _threads()
    if len(threads) > 1:
        return f"an import has started threads, which do not survive a fork: {', '.join(sorted(threads)[:4])}"
    return None


def _threads() -> list[str]:
    return [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]


def _open_files() -> set[str]:
    return {str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}


def _end_threads_that_a_fork_ends() -> None:
    """Forks a child that ends at once. OpenBLAS starts threads when it is loaded, and ends them before any fork."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


class _EnvironmentWatch:
    """Notes which of the variables that differ between runs are read."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._plain = type(os.environ)
        seen = self.seen

        class _Watched(os._Environ[str]):
            def __getitem__(self, key: str) -> Any:  # noqa: ANN401
                if key in RUN_VARIABLES:
                    seen.append(key)
                return super().__getitem__(key)

        os.environ.__class__ = _Watched

    def end(self) -> None:
        os.environ.__class__ = self._plain
