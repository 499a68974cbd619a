"""Reads what ranks have written by the run protocol, whoever wrote it."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Final

from dsopt.protocol.events import KINDS, VERSION, Engine, Event, FilePath
from dsopt.protocol.run_dir import RunDir
from dsopt.protocol.text import plain_text

_MOST_BYTES: Final = 2**24  # read at once
LARGEST_NUMBER: Final = 1e30
_LARGEST_WHOLE: Final = 2**62
_SIZES: Final = ("world_size", "num_params", "gas", "pipeline_stages", "autotp", "engines")


class EventReader:
    """Reads what ranks have written since the last call. It skips lines that are not events of version 1."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._offsets: dict[Path, int] = {}

    def read(self) -> Iterator[Event]:
        """Events of all ranks, each rank's in its own order."""
        for path in self._run_dir.all_events():
            offset = self._offsets.get(path, 0)
            try:
                with path.open("rb") as file:
                    file.seek(offset)
                    block = file.read(_MOST_BYTES)
            except OSError:  # the script has removed it
                continue
            complete = block.rpartition(b"\n")[0]
            if not complete and len(block) == _MOST_BYTES:  # no event is that long
                self._offsets[path] = offset + len(block)
            if complete:
                self._offsets[path] = offset + len(complete) + 1
                for line in complete.split(b"\n"):
                    event = parse(line)
                    if event is not None:
                        yield event


def parse(line: str | bytes) -> Event | None:
    """The event in one line, or None if this version does not know it, or a field is missing or cannot be so.

    It ignores unknown fields.
    """
    try:
        content: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("v") != VERSION:
        return None
    kind = KINDS.get(str(content.get("event")))
    if kind is None:
        return None
    try:
        event = kind(**{f.name: _VALUES[f.type](content[f.name]) for f in fields(kind) if _is_needed(f, content)})
    except (KeyError, ValueError):
        return None
    return None if isinstance(event, Engine) and missing_size(content) else event


def missing_size(engine: Mapping[str, Any]) -> str | None:
    """The first of an engine's fields of which there must be one at least, and is none: nothing could be told of it."""
    sizes = _SIZES if engine.get("framework", "deepspeed") != "deepspeed" else (*_SIZES, "micro_batch")
    return next((name for name in sizes if engine.get(name, 1) < 1), None)


def _is_needed(field: "Field[Any]", content: Mapping[str, Any]) -> bool:
    return field.name in content or field.default is MISSING


def _number(value: object) -> float:
    """A time, a size or a count: no NaN, nothing negative, nothing that arithmetic overflows with."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_NUMBER:
        raise ValueError
    return value


def _whole(value: object) -> int:
    if _number(value) > _LARGEST_WHOLE or value != int(_number(value)):
        raise ValueError
    return int(_number(value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return plain_text(value)


def _path(value: object) -> FilePath:
    if not isinstance(value, str) or b"\0" in os.fsencode(value):
        raise ValueError
    return FilePath(value)


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _texts(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ValueError
    return {_text(name): _text(text) for name, text in value.items()}


# how the value of a field of each type is read; a ValueError says that it is of another type
_VALUES: Final[Mapping[Any, Callable[[object], Any]]] = {
    int: _whole,
    int | None: lambda value: None if value is None else _whole(value),
    float: _number,
    str: _text,
    FilePath: _path,
    bool: _switch,
    Mapping[str, str]: _texts,
}
