"""Commands as people type them: split into words as a shell splits them, variables filled in."""

import os
import re
import shlex
from pathlib import Path

from dsopt.errors import DsoptError

_SHELL = frozenset(["&&", "||", "|", ";", "&", "<", "<<"])
_VARIABLE = re.compile(r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?")


def typed_words(command: str, where: str) -> list[str]:
    """The words of a command as a person types it, with the values of variables in them.

    Only for what was typed: a command that a shell has split already, or that was kept, is taken as it is.
    """
    return [_expanded(word, where) for word in split_words(command, where)]


def split_words(command: str, where: str) -> list[str]:
    """The words of a command.

    Raises:
        DsoptError: a quote is not closed.
    """
    try:
        return shlex.split(command)
    except ValueError as error:
        raise DsoptError(f"{where}: cannot be split into words: {error}. Check the quotes.") from None


def _expanded(word: str, where: str) -> str:
    """A word of a typed command with its variables' values. No shell runs the command, so other syntax is refused."""
    if word in _SHELL or word.startswith((">", "2>")) or "$(" in word or "`" in word:
        raise DsoptError(
            f"{where}: '{word}' is syntax of the shell, and no shell runs the command. "
            "Expected one launch command and no more."
        )
    expanded = os.path.expandvars(str(Path(word).expanduser()) if word.startswith("~/") else word)
    unset = _VARIABLE.search(expanded)
    if unset:
        raise DsoptError(f"{where}: the variable '{unset.group()}' in '{word}' is not set. Set it, or write its value.")
    return expanded
