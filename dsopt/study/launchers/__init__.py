"""The launchers that dsopt knows: one file each, and one line here. `docs/extending.md` shows how to add one."""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.study.launchers.accelerate import ACCELERATE
from dsopt.study.launchers.deepspeed import DEEPSPEED
from dsopt.study.launchers.launcher import Launcher
from dsopt.study.launchers.torchrun import TORCHRUN

_OWN: Final = (DEEPSPEED, TORCHRUN, ACCELERATE)
_GROUP: Final = "dsopt.launchers"  # entry points of other packages, each the `Launcher`


@cache
def known_launchers() -> tuple[Launcher, ...]:
    """dsopt's own launchers, then those of other packages.

    Raises:
        DsoptError: another package's cannot be imported, or is not a `Launcher`.
    """
    found = []
    for entry in entry_points(group=_GROUP):
        try:
            launcher = entry.load()
        except Exception as error:  # whatever somebody else's module raises
            raise DsoptError(
                f"entry point '{entry.name}' of {_GROUP}: {entry.value} cannot be imported: {error}. Fix or remove the "
                "package that declares it."
            ) from None
        if not isinstance(launcher, Launcher):
            raise DsoptError(f"entry point '{entry.name}' of {_GROUP}: {entry.value} is {launcher!r}, not a Launcher.")
        found.append(launcher)
    return (*_OWN, *found)


def recognize(words: Sequence[str]) -> tuple[Launcher, int] | None:
    """The launcher that a command begins with and how many words name it, or None.

    Raises:
        DsoptError: as `known_launchers`.
    """
    if not words:
        return None
    program = Path(words[0]).name
    called, at = [program, *words[1:]], 0
    if is_python := program.startswith("python"):
        flags = next((index for index, word in enumerate(words[1:]) if not word.startswith("-") or word == "-m"), 0)
        if list(words[flags + 1 : flags + 2]) != ["-m"]:
            return None
        called, at = list(words[flags + 2 :]), flags + 2
    for launcher in known_launchers():
        for name in launcher.modules if is_python else launcher.programs:
            if tuple(called[: len(name)]) == name:
                return launcher, at + len(name)
    return None


def examples() -> str:
    """How commands of the known launchers begin, for people."""
    typed = [f"'{' '.join(launcher.programs[0])}'" for launcher in known_launchers()]
    typed += [f"'python -m {' '.join(TORCHRUN.modules[0])}'"]
    return f"{', '.join(typed[:-1])} or {typed[-1]}"
