"""Tells which of the user's own files a training is made of, and what they hold: an edited one is another script."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any, Final

from dsopt.probe.imported import imported_modules, is_installed, is_standard
from dsopt.protocol.events import EventWriter, Sources
from dsopt.protocol.run_dir import RunDir
from dsopt.protocol.source_file import contents_digest, name_of

_MOST: Final = 200  # some scripts import a library from its own sources: then folders are told, and not files
_SETTINGS: Final = (".yaml", ".yml", ".toml", ".ini", ".cfg")
_MAYBE: Final = ".json"  # scripts keep what they have learnt in it, too: only if the command names it
_MOST_BYTES: Final = 1 << 20  # of a file with settings; larger ones are data


class OwnFiles:
    """Made before the script runs, which may change the folder.

    Args:
        writer: of this rank's events.
        run_dir: of the run, whose files are none of the user's.
    """

    def __init__(self, writer: EventWriter, run_dir: RunDir) -> None:
        self._writer, self._run_dir = writer, run_dir
        self._folder = Path.cwd()
        self._named = {os.path.abspath(part) for word in sys.argv for part in word.split("=")}  # noqa: PTH100
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._is_told = writer.rank > 0
        if not self._is_told:
            sys.addaudithook(self._see)

    def tell(self) -> None:
        """Tells, on rank 0, of the script, of the modules that it has imported by now which nobody installed, and of
        the files with settings that it has read in the working folder, or that the command names.

        A file that somebody edits between its import and this moment is told as it is now: few would see that.
        """
        if self._is_told:
            return
        self._is_told = True
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        modules = [
            file
            for name, file in imported_modules().items()
            if name.partition(".")[0] != "dsopt" and not is_installed(file) and not is_standard(file)
        ]
        paths = {name_of(self._folder / file, self._folder): self._folder / file for file in (script, *modules) if file}
        names = {name for name, path in paths.items() if name.isprintable() and path.suffix == ".py"}
        if len(names) > _MOST:
            names = {f"{Path(name).parent}/" for name in names}
        files = {name: contents_digest(self._folder / name) for name in [*sorted(names), *self._settings()][:_MOST]}
        self._writer.emit(Sources(rank=self._writer.rank, files=files))

    def _see(self, event: str, args: Any) -> None:  # noqa: ANN401 - Python calls it with whatever a program does
        if self._is_told or event != "open":
            return
        with contextlib.suppress(Exception):  # which the script's own `open` would raise
            name, _, flags = args
            if isinstance(name, str) and name.endswith((*_SETTINGS, _MAYBE)):
                writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
                (self._written if writes else self._read).add(os.path.abspath(name))  # noqa: PTH100 - keeps links

    def _settings(self) -> list[str]:
        """What the script has read and not written itself, by name."""
        own = [
            path
            for path in self._read - self._written
            if not Path(path).is_relative_to(self._run_dir.path) and (path in self._named or self._may_tell(path))
        ]
        return sorted(name_of(Path(path), self._folder) for path in own)

    def _may_tell(self, path: str) -> bool:
        """Whether a file that the command does not name holds settings of the user's own."""
        return (
            (Path(path).is_relative_to(self._folder) and not path.endswith(_MAYBE))
            and not is_installed(path)
            and path.isprintable()
            and Path(path).is_file()
            and Path(path).stat().st_size <= _MOST_BYTES
        )
