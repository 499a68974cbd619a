"""The Python environment that a command trains in: that of its launcher."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.launch.limited import Ended, Program, run_all
from dsopt.launch.program import find_launcher, path_with, python_of
from dsopt.study.command_secrets import with_values
from dsopt.study.own_programs import own_environment, own_program
from dsopt.study.spec import StudySpec

_RESULT: Final = "dsopt-result "  # begins the line of a program's result: libraries print lines, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What training processes start with.

    Attributes:
        python: the interpreter.
        environment: this process's without secrets, with the command's own assignments.
    """

    python: Path
    environment: Mapping[str, str]

    def program(self, module: str, *args: str, cwd: Path, **variables: str) -> Program:
        """A program of dsopt in this environment; its last line with a result is read by `result_of`."""
        return Program(
            argv=own_program(module, *args, python=str(self.python)),
            environment={**self.environment, **variables},
            cwd=cwd,
        )

    def run(self, program: Program, seconds: float) -> Ended:
        """Runs one program for at most this long."""
        [ended] = run_all([program], seconds=seconds)
        return ended


def training_of(spec: StudySpec | None) -> Training:
    """The environment of a study's launcher, or dsopt's own without a study.

    Raises:
        DsoptError: the launcher is not there, or dsopt cannot tell which Python it runs with.
    """
    environment = own_environment()
    if spec is None:
        return Training(python=Path(sys.executable), environment=_with_path(environment, Path(sys.executable)))
    command = with_values(spec.launch, os.environ)
    program = find_launcher(command.program[0], Path(spec.cwd))
    python = python_of(program)
    if python is None:
        raise DsoptError(
            f"command: cannot tell which Python the launcher {program} runs with: its first line names none"
        )
    return Training(python=python, environment=_with_path({**environment, **dict(command.environment)}, program))


def result_of(ended: Ended) -> Any:  # noqa: ANN401 - any JSON value
    """What a program of dsopt has printed as its result; None if it has not."""
    return next(reversed(results_in(ended.output)), None)


def results_in(output: str) -> list[Any]:
    """All that programs of dsopt have printed as their results, in order."""
    return [json.loads(line[len(_RESULT) :]) for line in output.splitlines() if line.startswith(_RESULT)]


def _with_path(environment: Mapping[str, str], program: Path) -> dict[str, str]:
    return {**environment, "PATH": path_with(environment, program)}
