"""The text of a training script and of the modules beside it that it imports."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsopt.study.command import LaunchCommand
from dsopt.study.documents import is_file

_MOST_FILES: Final = 200


def script_text(command: LaunchCommand, cwd: Path) -> str | None:
    """The text of a command's script and of its own modules; None if the script cannot be found or read.

    Python finds a script's own modules beside it, and those of a module in the working folder.
    """
    if command.is_module:
        folder, first = cwd, _module(cwd, command.script)
    else:
        first = cwd / command.script
        folder = first.parent
    if first is None or not is_file(first):
        return None
    texts: dict[Path, str] = {}
    left = [first]
    while left and len(texts) < _MOST_FILES:
        path = left.pop()
        if path in texts:
            continue
        try:
            texts[path] = path.read_text("utf-8", errors="replace")
        except OSError:
            texts[path] = ""
        left += [found for name in _imports(texts[path]) if (found := _module(folder, name)) is not None]
    return "\n".join(texts.values()) if texts[first] else None


def _module(folder: Path, name: str) -> Path | None:
    path = folder.joinpath(*name.split("."))
    return next((found for found in (path.with_suffix(".py"), path / "__init__.py") if is_file(found)), None)


def _imports(text: str) -> Iterator[str]:
    """The modules that a text imports, by their whole names; none if it is not Python of this version."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
