"""An exception's message as one line for people: all of it if it is short, else its beginning and its end."""

import itertools
import re
from typing import Final

from dsopt.protocol.events import Error

_LENGTH: Final = 600
_BEGINNING: Final = 360  # of a message that is cut; an exception raised again often ends with the first one's message
_HEADLINE = re.compile(r"\d+ validation errors? for ")  # pydantic: then a line with the key, and what is wrong with it
_ADVERTISEMENT = "For further information visit "  # pydantic, under each error
_ENDS_SENTENCE = (".", "!", "?", ":", ";", ",")


def in_one_line(message: str) -> str:
    """The lines of a message as one that ends like a sentence, 600 characters at most."""
    lines = [line for line in message.splitlines() if line.strip() and not line.strip().startswith(_ADVERTISEMENT)]
    text = lines[0].strip() if lines else "(no message)"
    for before, line in itertools.pairwise(lines):
        belongs = _indent(line) > _indent(before) or _HEADLINE.match(before) is not None
        text += " " if text.endswith(_ENDS_SENTENCE) else ": " if belongs else "; "
        text += line.strip()
    if len(text) > _LENGTH:
        text = f"{text[:_BEGINNING].rstrip()} … {text[_BEGINNING - _LENGTH + 3 :].lstrip()}"
    return text if text.endswith((".", "!", "?")) else f"{text}."


def raised_by(error: Error) -> str:
    """What a rank raised, in one line."""
    return f"rank {error.rank}: {error.type}: {in_one_line(error.message)}"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
