"""Hides secrets in what ranks tell: a script may print, set or name anything."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from dsopt.protocol.events import Engine, Error, Event, Oom, Sources, Withheld
from dsopt.study.secrets import hidden

# the others have numbers, and paths of files, which have to be found
_WITH_TEXT: Final = (Engine, Error, Oom, Sources, Withheld)


def without_secrets(events: Sequence[Event], secrets: Callable[[], Sequence[str]]) -> list[Event]:
    """The events, with `***` for these values and for what has the form of a secret, in all texts.

    A file of the script whose name has such a value is left out. A text that is cut, or put in one line, hides them no
    more: so this comes first.
    """
    if not any(isinstance(event, _WITH_TEXT) for event in events):
        return [*events]
    values = secrets()
    return [_hidden(event, values) if isinstance(event, _WITH_TEXT) else event for event in events]


def _hidden(event: Event, values: Sequence[str]) -> Event:
    if isinstance(event, Sources):
        return replace(event, files={name: of for name, of in event.files.items() if not _has(name + of, values)})
    names = (one.name for one in fields(event) if one.type is str)
    changed: dict[str, Any] = {name: hidden(getattr(event, name), values) for name in names}
    return replace(event, **changed)


def _has(text: str, values: Sequence[str]) -> bool:
    """Whether a text has one of these values; a file may well be called `hf_finetune.py`, as a token could be."""
    return any(value in text for value in values)
