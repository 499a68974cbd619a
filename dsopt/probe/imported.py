"""Records what a script has imported from installed packages when it builds its engine, to import it in advance later.

Only installed packages count: those in `site-packages`, and in folders on the path in which an installer has left its
records, as `pip install --target` does. The user's own modules may change between two runs, or read arguments.
"""

import os
import site
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Final

from dsopt.protocol.run_dir import RunDir

_SITES: Final = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("purelib")]
_NOT_HERE: Final = [folder for folder in sys.path if folder not in ("", str(Path.cwd()))]
_TARGETS: Final = [folder.rstrip(os.sep) for folder in _NOT_HERE if any(Path(folder).glob("*.dist-info"))]
_INSTALLED: Final = tuple({folder + os.sep for folder in (*_SITES, *_TARGETS)})
_STANDARD: Final = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})


class ImportRecord:
    """Follows the imports of a script until its own code changes the environment.

    An import after such a change may depend on it, as with `os.environ["OMP_NUM_THREADS"] = "4"` before `import torch`.
    """

    def __init__(self) -> None:
        self._modules: dict[str, str] | None = None
        self._changed = ""
        record = self

        class _Followed(os._Environ[str]):
            def __setitem__(self, key: str, value: str) -> None:
                record._see_change(key, sys._getframe(1))
                super().__setitem__(key, value)

            def __delitem__(self, key: str) -> None:
                record._see_change(key, sys._getframe(1))
                super().__delitem__(key)

        self._plain = type(os.environ)
        os.environ.__class__ = _Followed

    def write(self, run_dir: RunDir) -> None:
        """Ends the record and writes it: the modules in the order of their imports, each with its file.

        `changed` is the first variable that the script's own code changed, which ended the record, or empty.
        """
        os.environ.__class__ = self._plain
        modules = installed_modules() if self._modules is None else self._modules
        run_dir.write_json(run_dir.imports, {"modules": modules, "changed": self._changed})

    def _see_change(self, key: str, frame: FrameType | None) -> None:
        while frame is not None and is_standard(frame.f_code.co_filename):
            frame = frame.f_back
        if self._modules is None and frame is not None and not is_installed(frame.f_code.co_filename):
            self._modules, self._changed = installed_modules(), key


def imported_modules() -> dict[str, str]:
    """The imported modules that have a file, each with its file, in the order in which their imports ended."""
    found = {}
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.name == name and spec.has_location and spec.origin:
            found[name] = str(Path(spec.origin))
    return found


def installed_modules() -> dict[str, str]:
    """The imported modules that belong to installed packages."""
    return {name: file for name, file in imported_modules().items() if is_installed(file)}


def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package."""
    return file.startswith(_INSTALLED)


def is_standard(file: str) -> bool:
    """Whether a file belongs to Python's own library."""
    return file.startswith(("<frozen ", *_STANDARD)) and not is_installed(file)
