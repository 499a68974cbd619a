"""Tells which of the user's own files a training is made of, and what they hold: an edited one is another script."""

import sys
import time
from pathlib import Path
from typing import Final

from dsopt.probe.imported import imported_modules, is_installed, is_standard
from dsopt.protocol.events import EventWriter, Sources
from dsopt.protocol.source_file import contents_digest, name_of

_MOST: Final = 200  # files: some scripts import a library from its own sources


class OwnFiles:
    """Made before the script runs: it may change the folder, and somebody may edit a file after it was imported."""

    def __init__(self) -> None:
        self._folder = Path.cwd()
        self._began_ns = time.time_ns()

    def tell(self, writer: EventWriter) -> None:
        """Tells, on rank 0, of the script and the modules that it has imported by now from folders of its own."""
        if writer.rank:
            return
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        folders = [str(self._folder), *filter(None, sys.path)]
        modules = imported_modules()
        files = [
            file for name, file in modules.items() if name.partition(".")[0] != "dsopt" and _is_under(file, folders)
        ]
        names = {name_of(self._folder / file, self._folder): self._folder / file for file in (script, *files) if file}
        kept = sorted(name for name, path in names.items() if name.isprintable() and path.suffix == ".py")[:_MOST]
        writer.emit(Sources(rank=writer.rank, files={name: self._digest(names[name]) for name in kept}))

    def _digest(self, file: Path) -> str:
        """What a file holds; of one that was changed since, nobody knows what was imported, so it is like no other."""
        try:
            changed_ns = file.stat().st_mtime_ns
        except OSError:
            return ""
        return contents_digest(file) if changed_ns < self._began_ns else f"changed {changed_ns}"


def _is_under(file: str, folders: list[str]) -> bool:
    if is_installed(file) or is_standard(file):
        return False
    return any(Path(file).is_relative_to(folder) for folder in folders)
