"""Starts a training as the user would, in the foreground."""

import os
import subprocess
from pathlib import Path

from dsopt.launch.program import find_launcher, path_with
from dsopt.study.command import LaunchCommand
from dsopt.study.command_secrets import with_values
from dsopt.study.secrets import OWN_ACCESS


def train(command: LaunchCommand, cwd: Path) -> int:
    """Runs a launch command to its end, on this terminal; Ctrl-C reaches it as it would without dsopt.

    Returns:
        Its exit code, as a shell gives it: 128 and the signal's number when a signal ended it.

    Raises:
        DsoptError: the launcher cannot be found.
    """
    program = find_launcher(command.program[0], cwd)
    command = with_values(command, os.environ)
    own = {name: value for name, value in os.environ.items() if name not in OWN_ACCESS}
    environment = {**own, **dict(command.environment)}
    environment["PATH"] = path_with(environment, program)
    process = subprocess.Popen([str(program), *command.argv()[1:]], cwd=cwd, env=environment)
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            continue  # the launcher has it too, and ends its ranks
        return code if code >= 0 else 128 - code
