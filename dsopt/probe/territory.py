"""Places where what happens is nobody's loss: the run's own folder, and caches of libraries."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsopt.probe.places import is_aside
from dsopt.protocol.machine_folder import machine_folder
from dsopt.protocol.run_dir import RunDir

_COMPILED: Final = "torchinductor_"  # the folder for temporary files where torch.compile keeps what it has made
_CACHES: Final = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
# whose other folders may be the user's, such as a project beside them
_HOMES: Final = {"HF_HOME": ("hub", "datasets", "modules", "assets", "xet"), "TORCH_HOME": ("hub",)}


def _caches(working: Path) -> Iterator[Path]:
    """The folders that libraries cache in, links followed; what the working folder has of a library is the user's."""
    named = [os.environ.get(name) for name in _CACHES]
    homes = ((os.path.realpath(home), parts) for name, parts in _HOMES.items() if (home := os.environ.get(name)))
    found = [Path(home) / part for home, parts in homes if home != str(working) for part in parts]
    for folder in (*named, *found, Path.home() / ".cache"):
        if folder and not working.is_relative_to(resolved := Path(os.path.realpath(folder))):
            yield resolved


class Territory:
    """What lies where, for one rank.

    Args:
        working: the working folder.
        run_folder: that of the run.
    """

    def __init__(self, working: Path, run_folder: Path) -> None:
        self._working = working
        self._run_folder = Path(os.path.realpath(run_folder))
        self.is_record = RunDir(self._run_folder).is_record
        self._named_folder = Path(os.path.abspath(run_folder))  # noqa: PTH100 - links are not followed
        # what `tempfile` would say, which would stay with that then
        named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
        self._temporary = Path(os.path.realpath(next(filter(None, named), "/tmp")))  # noqa: S108
        self._caches = [*_caches(working)]

    def is_cached(self, path: Path) -> bool:
        """Whether it lies in a cache of some library."""
        is_compiled = path.is_relative_to(self._temporary) and self._is_compiled(path)
        return is_compiled or any(path.is_relative_to(cache) for cache in self._caches)

    def _is_compiled(self, path: Path) -> bool:
        folder = path.relative_to(self._temporary).parts[:1]
        is_named_so = "".join(folder).startswith(_COMPILED)
        return is_named_so and not self._working.is_relative_to(self._temporary.joinpath(*folder))

    def holds_the_run(self, path: Path) -> bool:
        """Whether something is the run's own folder, or has it, or is a link on the way to it."""
        return self._run_folder.is_relative_to(path) or self._named_folder.is_relative_to(path)

    def is_exempt(self, path: Path, *, is_noted: bool) -> bool:
        """Whether what happens there is nobody's loss: in the run's own, in caches, and elsewhere in hidden folders.

        `is_noted`: something of the user's has been moved there, which may be lost anywhere.
        """
        if is_noted or is_aside(path):
            return False
        if path.is_relative_to(self._run_folder) or self.is_cached(path) or path.parts[1:2] in (("proc",), ("sys",)):
            return True
        if path.is_relative_to(self._working):
            return False
        beside = path.relative_to(os.path.commonpath([path, self._working]))
        return any(part.startswith(".") for part in beside.parts)

    def is_temporary(self, path: Path) -> bool:
        """Whether it is in the folder for temporary files, and not in the working folder."""
        temporary = os.path.realpath(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - tempfile would keep what it finds
        return path.is_relative_to(temporary) and not path.is_relative_to(self._working)

    def holds_results(self, path: Path) -> bool:
        """Whether a script may save there what somebody goes on from: it is in no cache."""
        below = path.relative_to(self._working).parts if path.is_relative_to(self._working) else ()
        is_own_cache = any(part.startswith(".") and "cache" in part for part in below)
        if path.is_relative_to(machine_folder()):  # dsopt's own
            return False
        return not is_own_cache and not path.is_relative_to(self._run_folder) and not self.is_cached(path)
