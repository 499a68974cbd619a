"""Commands as people type them: splits them into words as a shell does, and fills in variables.

A variable is part of what the study is (a path, a size), so its value is kept. One whose name suggests a secret stays a
name: its value is known in the worker alone (`command_secrets.with_values`).
"""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.protocol.secret_names import is_secret_name
from dsopt.study.secrets import looks_secret

_SHELL = frozenset(["&&", "||", "|", ";", "&", "<", "<<"])
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_SEVERAL = re.compile(r"[^ \t\r\n][ \t\r\n]+[^ \t\r\n]")  # words, as a shell separates them: no other space ends one
# a backslash at the end of a line joins it with the next; pasted commands may have lost the line end behind it
_LINE_END = re.compile(r"\\\r?\n|(?<!\S)\\(?=\s|$)")


def typed_words(command: str | Sequence[object], where: str) -> list[str]:
    """The words of a command as a person gives it: a text, in which dsopt fills in variables, or a list of words.

    A shell has already split a list, so it is taken as it is, unless it is one quoted text.
    """
    if not isinstance(command, str):
        words = [str(word) for word in command]
        return typed_words(words[0], where) if _is_quoted_whole(words) else words
    words = split_words(_LINE_END.sub("", command), where)
    return typed_words(words[0], where) if _is_quoted_whole(words) else [_expanded(word, where) for word in words]


def split_words(command: str, where: str) -> list[str]:
    """The words of a command.

    Raises:
        DsoptError: a quote is not closed.
    """
    try:
        return shlex.split(command)
    except ValueError as error:
        raise DsoptError(f"{where}: cannot be split into words: {error}. Check the quotes.") from None


def _is_quoted_whole(words: Sequence[str]) -> bool:
    """Whether a command's only word is itself a command, in quotes that its place does not need."""
    return len(words) == 1 and _SEVERAL.search(words[0]) is not None


def _expanded(word: str, where: str) -> str:
    """A word of a typed command with its variables' values. No shell runs the command, so other syntax is refused."""
    if word in _SHELL or word.startswith((">", "2>")) or "$(" in word or "`" in word:
        raise DsoptError(
            f"{where}: '{word}' is shell syntax, but no shell runs the command. "
            "Expected one launch command and nothing else."
        )
    word = str(Path(word).expanduser()) if word.startswith("~/") else word
    return _VARIABLE.sub(lambda match: _value(match, word, where), word)


def _value(match: re.Match[str], word: str, where: str) -> str:
    """The value of a variable in a word; what may be a secret stays a name, which the worker fills in at launch."""
    name = match[1] or match[2]
    value = os.environ.get(name)
    if is_secret_name(name) and (value is None or looks_secret(name, value)):
        return match[0]
    if value is None:
        raise DsoptError(f"{where}: the variable '{match[0]}' in '{word}' is not set. Set it, or write its value.")
    return value
