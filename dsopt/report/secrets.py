"""Removes secrets, and whatever names a person, from text that others will read."""

import getpass
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from dsopt.protocol.secret_names import NAME, is_secret_name, is_sensitive
from dsopt.study.command import LaunchCommand
from dsopt.study.secrets import FORMS, HIDDEN, SHORTEST, TOKENS

_STRING: Final = r"""(?:"(?:[^"\\]|\\.)*")"""
_VALUE: Final = rf"""(?:{_STRING}|'(?:[^'\\]|\\.)*'|[^\s"',;&|)\]}}]+)"""
_BEGINS: Final = r"""[\[{](?:[\s"']|\Z)"""  # a list or an object: its parts are shown or hidden by themselves

_PATTERNS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
    (re.compile(r"\A.*-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL), HIDDEN),  # it began before this text
    (re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s'\"]*@"), rf"\1{HIDDEN}@"),  # the name, too
    *FORMS,
    (re.compile(rf"(--?[\w-]*{NAME}[\w-]*\s+)(?!-){_VALUE}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(rf"""([\w.-]*{NAME}[\w.-]*"\s*:\s*){_STRING}(?=\s*[,}}\]])""", re.IGNORECASE), rf'\1"{HIDDEN}"'),
    (
        re.compile(
            rf"""([\w.-]*{NAME}[\w.-]*["']?\s*[:=]\s*)(?!"{re.escape(HIDDEN)}"|{_BEGINS}){_VALUE}""", re.IGNORECASE
        ),
        rf"\1{HIDDEN}",
    ),
    # JSON inside a text, and a secret in a sentence: nearly all secrets contain a digit
    (re.compile(rf"""([\w.-]*{NAME}[\w.-]*\\+["']\s*:\s*\\+["'])[^"'\\]+""", re.IGNORECASE), rf"\1{HIDDEN}"),
    (
        re.compile(
            r"\b((?:token|password|pwd|secret|api[_ ]?key)\s+(?:is\s+)?)(?=[^\s'\"]*\d)[^\s'\",;]{6,}", re.IGNORECASE
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(\s-u\s+[^\s:]+:)\S+"), rf"\1{HIDDEN}"),
    *((token, HIDDEN) for token in TOKENS),
    # Weights & Biases
    (re.compile(r"(?<![0-9A-Fa-f])[0-9a-f]{40}(?![0-9A-Fa-f])"), HIDDEN),
)


def without_secrets(text: str, known: Iterable[str] = ()) -> str:
    """The text with secrets as `***`, home folders as `~` and the user's name as `user`.

    It hides what `known` lists, the values of this process's variables whose names suggest a secret, what follows such
    a name (`--hub_token …`, `"api_key": …`), the user's part of a URL, and whatever looks like a known kind of token.
    """
    ours = (value for name, value in os.environ.items() if is_secret_name(name))
    for value in sorted({*known, *ours}, key=len, reverse=True):
        if len(value) >= SHORTEST:
            text = text.replace(value, HIDDEN)
    for pattern, shown in _PATTERNS:
        text = pattern.sub(shown, text)
    return _without_person(text)


def shown_command(command: LaunchCommand) -> str:
    """A command for others: without the values of its assignments, and of flags whose names suggest a secret."""
    assignments = [f"{name}={HIDDEN}" for name, _ in command.environment]
    return " ".join([*assignments, *(shown for shown, _ in _words(command))])


def secrets_of(command: LaunchCommand) -> list[str]:
    """What `shown_command` hides, so that it can be hidden everywhere else, too."""
    given = [value for _, value in command.environment]
    return [*given, *(secret for _, secret in _words(command) if secret is not None)]


def _words(command: LaunchCommand) -> Iterator[tuple[str, str | None]]:
    """The words of a command as they may be shown, each with the secret that it hides, if any."""
    follows_name = False
    for word in command.argv():
        if word.startswith("-"):
            name, has_value, value = word.partition("=")
            follows_name = is_sensitive(name)
            yield (f"{name}={HIDDEN}", value) if has_value and follows_name else (shlex.quote(word), None)
        else:
            yield (HIDDEN, word) if follows_name else (shlex.quote(word), None)


def _without_person(text: str) -> str:
    home = str(Path.home())
    if home != "/":
        text = re.sub(rf"{re.escape(home)}(?![\w-])", "~", text)
    text = re.sub(r"/(?:home|Users)/[^/\s:'\",]+", "~", text)
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # the system does not know this user's number
        return text
    # a short name is a common word, and root names nobody
    return text if len(name) < 3 or name == "root" else re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "user", text)
