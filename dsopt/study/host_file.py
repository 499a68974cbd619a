"""The devices that the deepspeed launcher takes by a host file: on which nodes, and which of each.

As DeepSpeed reads it (`deepspeed/launcher/runner.py`): `--include` or `--exclude` choose first, `--num_nodes` takes the
first nodes of the file, and `--num_gpus` the first devices of each.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.study.command import LaunchCommand, indices_by_node
from dsopt.study.documents import read_text
from dsopt.study.wanted import Hosts, Wanted

USUAL_HOST_FILE: Final = "/job/hostfile"
_LINE = re.compile(r"(\S+)\s+slots=(\d{1,4})(\s.*)?", re.ASCII)
_LONGEST_NAME: Final = 253  # characters, as in DNS
_LABEL: Final = r"[A-Za-z0-9_][\w+-]{0,62}"
# of a host, perhaps with the user that ssh gets, or an address; it becomes part of a file's name
_NAME = re.compile(
    rf"(?:\w[\w.+$\\-]{{0,63}}@)?(?:{_LABEL}(?:\.{_LABEL})*\.?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?)", re.ASCII
)


def wanted_of(command: LaunchCommand, cwd: Path, where: str) -> Wanted:
    """What a run of a command wants of the nodes of its host file, if dsopt itself chooses among them.

    A command that says how many nodes and devices it takes may take any of them. Otherwise it takes those that
    DeepSpeed would.

    Raises:
        DsoptError: as `hosts_of`; or the file has too few nodes with so many devices.
    """
    exact = hosts_of(command, cwd, where)
    names_all = [*command.launcher.include, *command.launcher.exclude]
    if command.ranks is None or any(command.option(name) is not None for name in names_all):
        return Wanted(hosts=exact, nodes=len(exact))
    path = cwd / (command.hostfile or USUAL_HOST_FILE)
    return wanted_among(command, devices_of(path, f"{where}: command"), str(path), where)


def wanted_among(command: LaunchCommand, hosts: Hosts, of: str, where: str) -> Wanted:
    """What a run of a command wants of these nodes, which are those of `of`.

    Raises:
        DsoptError: there are too few nodes with so many devices.
    """
    says = command.option(*command.launcher.nodes) is not None or not command.uses_hostfile
    wanted = Wanted(hosts=hosts, nodes=command.nodes if says else len(hosts), devices=command.ranks)
    if not wanted.can_ever_be:
        of_each = f" with {wanted.devices} devices each" if wanted.devices is not None else ""
        have = ", ".join(f"{name} ({len(indices)})" for name, indices in hosts.items())
        raise DsoptError(
            f"{where}: command: it takes {wanted.nodes} nodes{of_each}; {of} has {have or 'none'}. Add nodes or "
            "devices there, or ask for fewer."
        )
    return wanted


def hosts_of(command: LaunchCommand, cwd: Path, where: str) -> dict[str, tuple[int, ...]]:
    """The devices of each node that a run of a command takes, by the node's name in the host file, in its order.

    Raises:
        DsoptError: the file cannot be read, has a line of another form, or lacks nodes that the command asks for.
    """
    path = cwd / (command.hostfile or USUAL_HOST_FILE)
    hosts = devices_of(path, f"{where}: command")
    for names in (command.launcher.include, command.launcher.exclude):
        chosen = indices_by_node(command.option(*names))
        missing = sorted(chosen.keys() - hosts.keys())
        if missing:
            raise DsoptError(
                f"{where}: command: {names[0]}: no node '{missing[0]}' in the host file {path}. "
                f"It has {', '.join(hosts)}."
            )
        if chosen:
            hosts = _filtered(hosts, chosen, keeps=names == command.launcher.include)
    if command.nodes > len(hosts):
        raise DsoptError(
            f"{where}: command: {command.launcher.nodes[0]} {command.nodes}: the host file {path} has only "
            f"{len(hosts)} nodes. Add the others, or ask for fewer."
        )
    if command.option(*command.launcher.nodes) is not None:
        hosts = dict(list(hosts.items())[: command.nodes])
    if command.option(*command.launcher.ranks) is not None and command.ranks is not None:
        hosts = {name: tuple(range(command.ranks)) for name in hosts}
    return hosts


def _filtered(
    hosts: Mapping[str, tuple[int, ...]], chosen: Mapping[str, frozenset[int]], *, keeps: bool
) -> dict[str, tuple[int, ...]]:
    """The nodes and devices that a filter keeps; a node without devices stands for all of its devices."""
    left = {}
    for name, indices in hosts.items():
        is_meant = [name in chosen and (not chosen[name] or index in chosen[name]) for index in indices]
        left[name] = tuple(index for index, meant in zip(indices, is_meant, strict=True) if meant == keeps)
    return {name: indices for name, indices in left.items() if indices}


def devices_of(path: Path, where: str) -> dict[str, tuple[int, ...]]:
    """The devices of each node of a host file, numbered from 0.

    Raises:
        DsoptError: it cannot be read, or has a line of another form.
    """
    try:
        text = read_text(path, "host file")
    except DsoptError as error:
        raise DsoptError(f"{where}: {error}") from None
    found: dict[str, tuple[int, ...]] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or match.group(1) in found:
            what = "is not of the form 'worker-1 slots=8'" if match is None else "names a node again"
            raise DsoptError(f"{where}: the host file {path}: line {number}, {line[:60]!r}, {what}.")
        if not _NAME.fullmatch(match.group(1)) or len(match.group(1)) > _LONGEST_NAME:
            name = match.group(1)[:60]
            raise DsoptError(
                f"{where}: the host file {path}: line {number}: {name!r} is no name of a host. Expected one such as "
                "'worker-1' or 'node1.example.org', or an address."
            )
        found[match.group(1)] = tuple(range(int(match.group(2))))
    if not found:
        raise DsoptError(f"{where}: the host file {path} names no node. Expected 'worker-1 slots=8' lines.")
    return found
