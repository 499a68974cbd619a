"""Refuses a launch command that dsopt cannot tune, before anything runs."""

from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.study.command import MOST_RANKS, LaunchCommand, is_count
from dsopt.study.documents import is_file
from dsopt.study.host_file import USUAL_HOST_FILE, hosts_of
from dsopt.study.mistakes import Mistakes


def check_command(command: LaunchCommand, cwd: Path, where: str, *, is_simulated: bool = False) -> None:
    """Refuses a command that dsopt cannot run. In a dry run (`is_simulated`) the script need not exist.

    Raises:
        DsoptError: invalid numbers, a script that does not exist or is not a Python program, a launcher that must be
            started on each node, nodes without a host file.
    """
    resources = ("command.resources",)
    with Mistakes() as mistakes:
        mistakes.check(resources, _check_numbers, command, where)
        if not is_simulated:
            mistakes.check(resources, _check_nodes, command, where)
        mistakes.check(resources, _check_launcher, command, where)
        if command.config == "":
            mistakes.add(
                f"{where}: command: the path of the DeepSpeed configuration is empty. Expected a file's path.",
                "ds_config",
            )
        if not is_simulated:
            mistakes.check(resources, _check_hostfile, command, cwd, where)
            mistakes.check((), _check_script, command, cwd, where)


def _check_numbers(command: LaunchCommand, where: str) -> None:
    """Refuses invalid numbers of ranks and nodes."""
    launcher = command.launcher
    for names, words in ((launcher.ranks, launcher.rank_words), (launcher.nodes, launcher.node_words)):
        value = command.option(*names)
        if value is None or (is_count(value) and int(value) >= 1) or value in words:
            continue
        raise DsoptError(f"{where}: command: {names[0]} {value[:40]}. Expected a whole number from 1 to {MOST_RANKS}.")


def _check_nodes(command: LaunchCommand, where: str) -> None:
    """Refuses several nodes with a launcher that dsopt cannot start on each of them."""
    launcher = command.launcher
    if not launcher.hostfile and command.nodes > 1 and not launcher.can_be_spread(command.options):
        known = {*launcher.observable, *launcher.rendezvous, *launcher.each_node}
        hindering = next((name for name in command.options.names if name not in known), launcher.name)
        raise DsoptError(
            f"{where}: command: {launcher.nodes[0]} {command.nodes}: dsopt starts {launcher.name} on each node itself, "
            f"and does not know what {hindering} does there. Leave it out, or give a command for one node."
        )


def _check_launcher(command: LaunchCommand, where: str) -> None:
    """Refuses what the launcher itself would refuse."""
    mistake = command.launcher.mistake(command.options)
    if mistake is not None:
        raise DsoptError(f"{where}: command: {mistake}")
    launcher, visible = command.launcher, dict(command.environment).get("CUDA_VISIBLE_DEVICES")
    choosing = (*launcher.devices, *launcher.ranks, *launcher.nodes, *launcher.hostfile)
    hiding = next((name for name in command.options.names if name in choosing), None)
    if launcher.hides_visible and visible and hiding is not None:
        raise DsoptError(
            f"{where}: command: the launcher ignores CUDA_VISIBLE_DEVICES={visible} beside {hiding}, and takes other "
            f"GPUs. Leave out {hiding}, or write {launcher.include[0]} localhost:{visible} in place of both."
        )


def _check_script(command: LaunchCommand, cwd: Path, where: str) -> None:
    """Refuses a script that does not exist, or that dsopt cannot observe."""
    if command.has_launcher_flag("--no_python"):
        _check_python_program(command, cwd, where)
    if not command.is_module and not is_file(cwd / command.script):
        raise DsoptError(
            f"{where}: command: no training script '{command.script}' in {cwd}. "
            "Check the path; it is relative to 'cwd' (by default the folder of the study file, or the current one)."
        )


def _check_hostfile(command: LaunchCommand, cwd: Path, where: str) -> None:
    """Refuses a host file that has too few nodes: the launcher would then train on fewer.

    A command without one may be for the nodes of a worker.
    """
    if not command.uses_hostfile:
        return
    if is_file(cwd / (command.hostfile or USUAL_HOST_FILE)):
        hosts_of(command, cwd, where)
    elif command.hostfile is not None:
        raise DsoptError(
            f"{where}: command: no host file '{command.hostfile}' in {cwd}. Expected a file with a line such as "
            "'worker-1 slots=8' for each node. Check the path, or leave out the option."
        )


def _check_python_program(command: LaunchCommand, cwd: Path, where: str) -> None:
    """With --no_python the launcher starts the script itself; the probe can only wrap a Python program."""
    path = cwd / command.script
    first = path.open("rb").readline() if is_file(path) else b""
    if not (command.script.endswith(".py") or (first.startswith(b"#!") and b"python" in first)):
        raise DsoptError(
            f"{where}: command: --no_python with '{command.script}': the script must be a Python program. "
            "Give the Python script that it starts."
        )
