"""The nodes of a host file: whether each can be reached without a password."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from dsopt.doctor.check import Check, ok, problem, skipped
from dsopt.doctor.programs import Program, run_all
from dsopt.study.command import LaunchCommand
from dsopt.study.host_file import hosts_of
from dsopt.study.own_programs import own_environment
from dsopt.study.spec import StudySpec

NAME: Final = "host-file"
_ANSWER_SECONDS: Final = 5
_LIMIT_SECONDS: Final = 20.0
_AT_ONCE: Final = 16


def check_hosts(spec: StudySpec) -> Iterator[Check]:
    """Asks each node of the host file to do nothing, by ssh, as DeepSpeed's launcher does before it starts ranks."""
    command = spec.resources
    if not command.uses_hostfile or spec.is_simulated:
        yield skipped(NAME, "runs use this machine alone")
        return
    hosts = list(hosts_of(command, Path(spec.cwd), f"study '{spec.name}'"))
    if command.has_launcher_flag("--no_ssh"):
        yield skipped(NAME, f"{len(hosts)} nodes; with --no_ssh you start the command on each of them")
        return
    if command.option("--launcher") in (None, "pdsh") and shutil.which("pdsh") is None and len(hosts) > 1:
        yield problem(NAME, "DeepSpeed starts ranks on other nodes with pdsh, which is not installed", "Install pdsh")
    if shutil.which("ssh") is None:
        yield problem(NAME, "there is no ssh here", "Install an ssh client, such as openssh-client")
        return
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = list(threads.map(lambda host: _trouble(host, command), hosts))
    for host, wrong in zip(hosts, answers, strict=True):
        if wrong:
            yield problem(
                NAME,
                f"{host} does not answer: {wrong}",
                f"Make this work without a password: {' '.join(_words(host, command))}",
            )
    if not any(answers):
        yield ok(NAME, f"all nodes answer: {', '.join(hosts)}")


def _trouble(host: str, command: LaunchCommand) -> str:
    program = Program(argv=_words(host, command), environment=own_environment(), cwd=Path.cwd())
    [ended] = run_all([program], seconds=_LIMIT_SECONDS)
    if ended.code is None:
        return f"no answer within {_LIMIT_SECONDS:.0f} seconds"
    return ended.last_words if ended.code else ""


def _words(host: str, command: LaunchCommand) -> list[str]:
    port = command.option("--ssh_port")
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_ANSWER_SECONDS}", *(["-p", port] if port else [])]
    return ["ssh", *options, "--", host, "true"]
