"""What runs were given of secrets: what can be hidden of it here, and what cannot."""

import os

from dsopt.protocol.given import read_given_json
from dsopt.protocol.run_dir import RunDir
from dsopt.report.secrets import secrets_of
from dsopt.study.command_secrets import literal_secrets, variables_of
from dsopt.study.comparison import specs_of_runs
from dsopt.study.secrets import SHORTEST, secret_values
from dsopt.study.spec import StudySpec


def secrets_of_runs(spec: StudySpec) -> list[str]:
    """What scripts may print of secrets, in all forms: what commands have, and what runs get, if it is set here."""
    found = [os.environ[name] for name in _asked(spec) if name in os.environ]
    for command in (each.launch for each in specs_of_runs(spec)):
        found += [*secrets_of(command), *literal_secrets(command)]
    return secret_values(os.environ, found)


def unhidden(spec: StudySpec, run: RunDir) -> list[str]:
    """The variables that a run was given, and whose values cannot be hidden here: not set, or too short.

    Of what a pattern gave it, these are the secrets that its folder lists; the pattern, if that cannot be read.
    """
    asked, given = _asked(spec), _given(run)
    if given is not None:
        asked = [*(name for name in asked if "*" not in name), *given]
    return [name for name in dict.fromkeys(asked) if len(os.environ.get(name, "")) < SHORTEST]


def _asked(spec: StudySpec) -> list[str]:
    """The variables that commands refer to, and the names and patterns of `pass_env`."""
    return [name for each in specs_of_runs(spec) for name in (*variables_of(each.launch), *each.pass_env)]


def _given(run: RunDir) -> list[str] | None:
    """The names of the secrets that a run was given."""
    try:
        match read_given_json(run.description):
            case {"secret_variables": [*names]}:
                return [str(name) for name in names]
    except (OSError, ValueError):
        pass
    return None
