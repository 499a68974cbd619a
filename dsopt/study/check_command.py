"""What of a launch command cannot be tuned, said before anything is run."""

import re
from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.study.command import LaunchCommand

_FILTER = re.compile(r"[\w.-]+(:\d+(-\d+)?(,\d+(-\d+)?)*)?(@[\w.-]+(:\d+(-\d+)?(,\d+(-\d+)?)*)?)*", re.ASCII)

_USUAL_HOSTFILE = "/job/hostfile"  # deepspeed/launcher/runner.py


def check_command(command: LaunchCommand, cwd: Path, where: str, *, is_simulated: bool = False) -> None:
    """Refuses a command that dsopt cannot run. In a dry run (`is_simulated`) the script need not be there.

    Raises:
        DsoptError: numbers that are none, a script that is not there or no Python program, a start on each node,
            nodes without a host file.
    """
    launcher = command.launcher
    for names in (launcher.ranks, launcher.nodes):
        value = command.option(*names)
        if value is None or (value.isdecimal() and int(value) >= 1):
            continue
        if launcher.kind == "torchrun" and value in (("gpu", "cpu", "auto") if names == launcher.ranks else ("1:1",)):
            continue
        raise DsoptError(f"{where}: command: {names[0]} {value}. Expected a whole number of at least 1.")
    if launcher.kind != "deepspeed" and command.nodes > 1 and not is_simulated:
        raise DsoptError(
            f"{where}: command: {launcher.nodes[0]} {command.nodes}: {launcher.kind} has to be started on each node by "
            "hand. Expected a command for one node, or the deepspeed launcher with a --hostfile."
        )
    _check_filters(command, where)
    if command.config == "":
        raise DsoptError(f"{where}: command: the DeepSpeed configuration is given as nothing. Expected a file's path.")
    if is_simulated:
        return
    _check_hostfile(command, cwd, where)
    if command.has_launcher_flag("--no_python"):
        _check_python_program(command, cwd, where)
    if not command.is_module and not (cwd / command.script).is_file():
        raise DsoptError(
            f"{where}: command: no training script '{command.script}' in {cwd}. "
            "Check the path; it is relative to 'cwd' (by default the study file's folder, or the current one)."
        )


def _check_hostfile(command: LaunchCommand, cwd: Path, where: str) -> None:
    """Refuses nodes that nothing names; the deepspeed launcher trains on this one alone where the file is not there."""
    if not command.uses_hostfile:
        return
    path = cwd / (command.hostfile or _USUAL_HOSTFILE)
    if path.is_file():
        return
    if command.hostfile is not None:
        raise DsoptError(
            f"{where}: command: no host file '{command.hostfile}' in {cwd}. Expected a file with a line such as "
            "'worker-1 slots=8' for each node; check the path, or leave it out."
        )
    raise DsoptError(
        f"{where}: command: {command.nodes} nodes, and no host file. Expected --hostfile FILE, with a line such as "
        f"'worker-1 slots=8' for each node (without it the launcher reads {_USUAL_HOSTFILE}, which is not there)."
    )


def _check_filters(command: LaunchCommand, where: str) -> None:
    """Refuses what the deepspeed launcher would refuse of `--include` and `--exclude`."""
    if command.launcher.kind != "deepspeed":
        return
    filters = {names[0]: command.option(*names) for names in (("--include", "-i"), ("--exclude", "-e"))}
    for name, value in filters.items():
        if value is not None and not _FILTER.fullmatch(value):
            raise DsoptError(f"{where}: command: {name} {value}. Expected nodes and devices such as localhost:0,2.")
    given = [name for name, value in filters.items() if value is not None]
    if len(given) == 2:
        raise DsoptError(f"{where}: command: --include and --exclude are both given. Keep one of them.")
    counted = command.option(*command.launcher.ranks, *command.launcher.nodes)
    if given and counted is not None:
        raise DsoptError(
            f"{where}: command: {given[0]} goes with neither --num_gpus nor --num_nodes. Keep one of them."
        )


def _check_python_program(command: LaunchCommand, cwd: Path, where: str) -> None:
    """With --no_python the script is started by itself; the probe can only stand in front of a Python one."""
    path = cwd / command.script
    first = path.open("rb").readline() if path.is_file() else b""
    if not (command.script.endswith(".py") or (first.startswith(b"#!") and b"python" in first)):
        raise DsoptError(
            f"{where}: command: --no_python with '{command.script}': the script has to be a Python program. "
            "Give the Python script that it starts."
        )
