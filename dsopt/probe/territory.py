"""Places where what happens is nobody's loss: the run's own folder, and caches of libraries."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_COMPILED: Final = "torchinductor_"  # the folder in /tmp where torch.compile keeps what it has made
_CACHES: Final = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
# whose other folders may be the user's, such as a project beside them
_HOMES: Final = {"HF_HOME": ("hub", "datasets", "modules", "assets", "xet"), "TORCH_HOME": ("hub", "checkpoints")}


def _caches() -> Iterator[Path]:
    """The folders that libraries cache in, links followed."""
    named = [os.environ.get(name) for name in _CACHES]
    homes = [Path(home) / part for name, parts in _HOMES.items() if (home := os.environ.get(name)) for part in parts]
    yield from (Path(os.path.realpath(folder)) for folder in (*named, *homes, Path.home() / ".cache") if folder)


class Territory:
    """What lies where, for one rank.

    Args:
        working: the working folder.
        run_folder: that of the run.
    """

    def __init__(self, working: Path, run_folder: Path) -> None:
        self._working = working
        self._run_folder = Path(os.path.realpath(run_folder))
        self._named_folder = Path(os.path.abspath(run_folder))  # noqa: PTH100 - links are not followed
        self._caches = [folder for folder in _caches() if not working.is_relative_to(folder)]

    def is_cached(self, path: Path) -> bool:
        """Whether it lies in a cache of some library."""
        is_compiled = any(part.startswith(_COMPILED) for part in path.parts)
        return is_compiled or any(path.is_relative_to(cache) for cache in self._caches)

    def holds_the_run(self, path: Path) -> bool:
        """Whether something is the run's own folder, or has it, or is a link on the way to it."""
        return self._run_folder.is_relative_to(path) or self._named_folder.is_relative_to(path)

    def is_exempt(self, path: Path, *, is_noted: bool) -> bool:
        """Whether what happens there is nobody's loss: in the run's own, in caches, and elsewhere in hidden folders.

        `is_noted`: something of the user's has been moved there.
        """
        if path.is_relative_to(self._run_folder) or self.is_cached(path) or path.parts[1:2] in (("proc",), ("sys",)):
            return True
        if path.is_relative_to(self._working) or is_noted:
            return False
        beside = path.relative_to(os.path.commonpath([path, self._working]))
        return any(part.startswith(".") for part in beside.parts)

    def holds_results(self, path: Path) -> bool:
        """Whether a script may save there what somebody goes on from: it is neither hidden nor in a cache."""
        is_below = path.is_relative_to(self._working)
        is_hidden = is_below and any(part.startswith(".") for part in path.relative_to(self._working).parts)
        return not is_hidden and not path.is_relative_to(self._run_folder) and not self.is_cached(path)
