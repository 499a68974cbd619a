"""Tells which of the user's own files a training is made of, and what they hold: an edited one is another script."""

import sys
from pathlib import Path
from typing import Final

from dsopt.probe.imported import imported_modules, is_installed, is_standard
from dsopt.protocol.events import EventWriter, Sources
from dsopt.protocol.source_file import contents_digest, name_of

_MOST: Final = 200  # some scripts import a library from its own sources: then folders are told, and not files


class OwnFiles:
    """Made before the script runs, which may change the folder."""

    def __init__(self) -> None:
        self._folder = Path.cwd()

    def tell(self, writer: EventWriter) -> None:
        """Tells, on rank 0, of the script and of the modules that it has imported by now which nobody installed.

        A file that somebody edits between its import and this moment is told as it is now: few would see that.
        """
        if writer.rank:
            return
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
        files = {name: contents_digest(self._folder / name) for name in sorted(names)[:_MOST]}
        writer.emit(Sources(rank=writer.rank, files=files))
