"""Secrets in a launch command: those written out, and the variables that it refers to."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from dsopt.protocol.secret_names import is_secret_name
from dsopt.study.command import LaunchCommand
from dsopt.study.inline_config import decoded
from dsopt.study.secrets import (
    HIDDEN,
    SHORTEST,
    filled,
    looks_secret,
    quoted,
    references,
    shown_settings,
    without_references,
)

_HIDDEN: Final = quoted(HIDDEN)  # so that a shell fills in nothing


def variables_of(command: LaunchCommand) -> list[str]:
    """The secret variables that a command refers to, each once."""
    texts = [*(value for _, value in command.environment), *command.argv()]
    return list(dict.fromkeys(name for text in texts for name in references(text)))


def with_values(command: LaunchCommand, environment: Mapping[str, str]) -> LaunchCommand:
    """The command with the values of the secret variables that it refers to."""
    return replace(
        command,
        environment=tuple((name, filled(value, environment)) for name, value in command.environment),
        program=tuple(filled(word, environment) for word in command.program),
        launcher_args=tuple(filled(word, environment) for word in command.launcher_args),
        script=filled(command.script, environment),
        script_args=tuple(filled(word, environment) for word in command.script_args),
    )


def shown(command: LaunchCommand) -> str:
    """The command for people and files: references as they are, secrets that are written out as `***`."""
    return " ".join(word for word, _, _ in _words(command))


def may_hide_what_runs(command: LaunchCommand) -> bool:
    """Whether `shown` hides a word under no name of a secret, or one that is not given to the script."""
    runs, variables = [*command.program, *command.launcher_args, command.script], len(command.environment)
    for number, (_, name, secrets) in enumerate(_words(command)):
        is_named = is_secret_name(name) and (number < variables or name.startswith("-"))
        if secrets and (not is_named or any(secret in word for secret in secrets for word in runs)):
            return True
    return False


def literal_secrets(command: LaunchCommand) -> list[str]:
    """The secrets that are written out in a command."""
    return [secret for _, _, secrets in _words(command) for secret in secrets]


def secret_warnings(command: LaunchCommand, where: str) -> list[str]:
    """What to do about secrets that are written out in a command. It does not repeat them."""
    secrets = ((name, secret) for _, name, of_it in _words(command) for secret in of_it)
    names = dict.fromkeys(name for name, secret in secrets if not _is_secret_config(secret))  # of that, others warn
    return [
        f"{where}: command: {name} seems to hold a secret, which is now in the database. Write the name of a variable "
        f"instead, such as {example}, in single quotes where a shell would fill it in: each worker takes the value "
        "from its own environment. A study does not change: create one with another name, and delete this one"
        for name in names
        for example in [f"${name}" if name.isidentifier() else "$HF_TOKEN"]
    ]


def config_warnings(config: Mapping[str, Any], where: str, path: str = "") -> list[str]:
    """What to do about secrets in DeepSpeed's configuration, which has no place for the name of a variable."""
    found = []
    for key, value in config.items():
        if isinstance(value, Mapping):
            found += config_warnings(value, where, f"{path}{key}.")
        elif isinstance(value, str) and _is_written_out(str(key), without_references(value)):
            found.append(
                f"{where}: {path}{key} seems to hold a secret, which is now in the database. Leave it out, and set the "
                "variable that the library reads instead"
            )
    return found


def _is_written_out(key: str, value: str) -> bool:
    return len(value) >= SHORTEST and looks_secret(key, value)


def _words(command: LaunchCommand) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The words of a command as they may be shown, each with a name and the secrets that it hides."""
    for name, value in command.environment:
        secret = _secret(name, value)
        yield f"{name}={quoted(value) if secret is None else _HIDDEN}", name, () if secret is None else (secret,)
    flag = ""
    for word in command.argv():
        name, has_value, value = word.partition("=")
        if word.startswith("-"):
            flag = name
        if has_value and (secret := _secret(name, value)) is not None:
            if looks_secret("", without_references(name)):  # a password in a URL, before its query
                yield _HIDDEN, flag or "a word", (word, secret)
            else:
                yield f"{quoted(name)}={_HIDDEN}", name, (secret,)
        elif not word.startswith("-") and (secret := _secret(flag, word)) is not None:
            yield _HIDDEN, flag or "a word", (secret,)
        else:
            yield quoted(word), flag, ()
        if not word.startswith("-") and not flag.endswith("s"):
            flag = ""  # its value is over, unless its name says that there are several


def _secret(name: str, value: str) -> str | None:
    """The secret that is written out in a value, if it holds one."""
    if references(value):  # what stands beside a reference, such as `Bearer`, is not the secret
        name = ""
    return value if looks_secret(name, without_references(value)) or _is_secret_config(value) else None


def _is_secret_config(value: str) -> bool:
    """Whether this is a configuration in base64 that holds a secret, or may: it has comments, say."""
    text = decoded(value)
    if text is None:
        return False
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return True
    return isinstance(config, Mapping) and bool(config_warnings(config, ""))


def shown_spec(stored: str) -> dict[str, Any]:
    """A study as it is stored (`StudySpec.to_json`), for people and files: settings and commands without secrets."""
    content: dict[str, Any] = json.loads(stored)
    result: dict[str, Any] = shown_settings(content)
    for before, after in zip((content, *content.get("compare", ())), (result, *result.get("compare", ())), strict=True):
        after["command"] = shown(LaunchCommand.parse(before["command"], "study"))
    return result
