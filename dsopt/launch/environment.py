"""What a run gets of the worker's environment: everything but secrets that it does not ask for."""

import fnmatch
from collections.abc import Mapping, Sequence

from dsopt.errors import DsoptError
from dsopt.study.command import LaunchCommand
from dsopt.study.command_secrets import literal_secrets, variables_of
from dsopt.study.secrets import OWN_ACCESS, looks_secret, secret_values
from dsopt.study.spec import StudySpec


def withheld(base: Mapping[str, str], command: LaunchCommand, pass_env: Sequence[str]) -> list[str]:
    """The variables that look like secrets, and that neither the command nor `pass_env` names."""
    asked = [*variables_of(command), *pass_env]
    return [name for name in _secrets(base) if not _is_asked(name, asked)]


def secrets_given(base: Mapping[str, str], command: LaunchCommand, pass_env: Sequence[str]) -> list[str]:
    """The variables that look like secrets, and that a run gets: the command or `pass_env` names them."""
    asked = [*variables_of(command), *pass_env]
    return [name for name in _secrets(base) if _is_asked(name, asked)]


def passed_on(base: Mapping[str, str], command: LaunchCommand, pass_env: Sequence[str]) -> dict[str, str]:
    """The environment without what is withheld, and without dsopt's own access to its database."""
    left_out = {*OWN_ACCESS, *withheld(base, command, pass_env)}
    return {name: value for name, value in base.items() if name not in left_out}


def asked_for(base: Mapping[str, str], pass_env: Sequence[str]) -> dict[str, str]:
    """The variables that `pass_env` names, as far as there are any."""
    return {name: value for name, value in base.items() if name not in OWN_ACCESS and _is_asked(name, pass_env)}


def only_passed(lines: Sequence[str], command: LaunchCommand, pass_env: Sequence[str]) -> list[str]:
    """The lines `NAME=VALUE` of an environment file, without those of variables that are withheld."""
    found = variables_in(lines)
    left_out = {*OWN_ACCESS, *withheld(found, command, pass_env)}
    return [line for line in lines if line.partition("=")[0] not in left_out]


def variables_in(lines: Sequence[str]) -> dict[str, str]:
    """The variables of an environment file."""
    return dict(line.partition("=")[::2] for line in lines if "=" in line)


def known_secrets(base: Mapping[str, str], command: LaunchCommand) -> list[str]:
    """What no message may repeat: the secrets of an environment, and those that a command has or refers to."""
    named = [base[name] for name in variables_of(command) if name in base]
    return secret_values(base, [*named, *literal_secrets(command)])


def check_variables(spec: StudySpec, base: Mapping[str, str]) -> None:
    """Refuses an environment that lacks what the command refers to, or what `pass_env` names.

    Raises:
        DsoptError: names what is missing.
    """
    where = f"study '{spec.name}'"
    for name in variables_of(spec.launch):
        if name not in base:
            raise DsoptError(
                f"{where}: command: the variable '{name}' is not set in this worker's environment. "
                "The study keeps only its name. Set it, then start the worker again."
            )
    for name in spec.pass_env:
        if "*" not in name and name not in base:
            raise DsoptError(
                f"{where}: pass_env: the variable '{name}' is not set in this worker's environment. "
                "Set it, then start the worker again."
            )


def _secrets(base: Mapping[str, str]) -> list[str]:
    """The variables that look like secrets, sorted, without dsopt's own."""
    return sorted(name for name, value in base.items() if name not in OWN_ACCESS and looks_secret(name, value))


def _is_asked(name: str, asked: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in asked)
