"""Real OpenSSH servers on nodes of this machine, with keys of their own. Nothing touches the user's `~/.ssh`."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.cluster.nodes import Daemon, Node, free_ports, need_nodes, need_programs, nodes, program, wait_until

_PRIVILEGE_SEPARATION = Path("/run/sshd")  # sshd asks for it when root starts it
_SERVER = """\
ListenAddress {address}:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
Subsystem sftp internal-sftp
MaxStartups 100
"""
_CLIENT = """\
Host {name}
    HostName {address}
    Port {port}
    IdentityFile {folder}/key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    HostKeyAlias node
    StrictHostKeyChecking yes
    BatchMode yes
"""


class Hosts:
    """Nodes that answer ssh.

    Attributes:
        nodes: by name.
        config: a file for `ssh -F`, with the names, ports and keys.
        environment: the variables with which programs reach the nodes by name through plain `ssh`, `scp` and `pdsh`:
            `PATH` begins with a folder of wrappers that give `config` to the real programs.
        daemons: the servers, by node.
    """

    def __init__(self, folder: Path, found: dict[str, Node]) -> None:
        self.nodes, self.config = found, folder / "ssh_config"
        path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
        self.environment = {"PATH": path, "PDSH_RCMD_TYPE": "ssh"}
        self.daemons: dict[str, Daemon] = {}

    def run(self, *command: str, seconds: float = 60) -> str:
        """Runs a program of this machine that finds the nodes, checks that it succeeds, gives what it printed."""
        ended = subprocess.run(
            command, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
        )  # fmt: skip
        assert ended.returncode == 0, f"exit code {ended.returncode} of {command}:\n{ended.stdout}"
        return ended.stdout

    def host_file(self, slots: int) -> str:
        """The text of DeepSpeed's host file for these nodes."""
        return "".join(f"{name} slots={slots}\n" for name in self.nodes)


@contextlib.contextmanager
def hosts(folder: Path, *names: str, environment: Mapping[str, str] | None = None) -> Iterator[Hosts]:
    """Nodes of these names that answer ssh. All of it ends with the context.

    Args:
        folder: an empty one, for keys, configuration and logs.
        names: of the nodes.
        environment: variables that each session on a node has; without them, those of a fresh login alone.
    """
    need_sshd()
    _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)  # it stays: other tests beside this one may need it, too
    with nodes(folder, *names) as found:
        made = Hosts(folder, found)
        _make_keys(folder)
        _write_wrappers(folder / "bin", made.config)
        for (name, node), port in zip(found.items(), free_ports(len(found)), strict=True):
            about = {"name": name, "address": node.address, "port": port, "folder": folder}
            given = {"CLUSTER": str(folder), **(environment or {})}  # processes with the folder are known to be ours
            variables = " ".join(f'"{key}={value}"' for key, value in given.items())
            server = folder / f"sshd_config.{name}"
            server.write_text(f"{_SERVER.format(**about)}SetEnv {variables}\n")
            with made.config.open("a") as config:
                config.write(_CLIENT.format(**about))
            command = [program("sshd"), "-D", "-e", "-f", str(server)]
            made.daemons[name] = node.start(*command, log=folder / f"{name}.log")
        for name in names:
            wait_until(lambda name=name: _answers(made, name), f"{name} answers ssh")
        yield made


def need_sshd() -> None:
    """Skips a test where sshd cannot run, and says why."""
    need_programs("sshd", package="openssh-server")
    need_programs("ssh", "ssh-keygen", package="openssh-client")
    need_programs("pdsh", package="pdsh")
    need_nodes()


def _answers(made: Hosts, name: str) -> bool:
    tried = subprocess.run(["ssh", "-F", made.config, name, "true"], stdin=subprocess.DEVNULL, capture_output=True)
    return tried.returncode == 0


def _make_keys(folder: Path) -> None:
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    public = (folder / "host_key.pub").read_text().split()
    (folder / "known_hosts").write_text(f"node {public[0]} {public[1]}\n")


def _write_wrappers(folder: Path, config: Path) -> None:
    folder.mkdir()
    for name in ("ssh", "scp"):
        wrapper = folder / name
        wrapper.write_text(f'#!/bin/sh\nexec {program(name)} -F "{config}" "$@"\n')
        wrapper.chmod(0o755)
