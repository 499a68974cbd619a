"""The other nodes of a study's runs: whether ranks can be started on each."""

import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from dsopt.doctor.check import Check, ok, problem, skipped
from dsopt.launch.devices import DevicePool
from dsopt.launch.limited import Program, run_all
from dsopt.launch.placement import Reach
from dsopt.launch.placers.placer import ChoosingPlacer, LeasingPlacer
from dsopt.study.command import LaunchCommand
from dsopt.study.own_programs import own_environment, own_program
from dsopt.study.spec import StudySpec
from dsopt.worker.capacity import places_of

NAME: Final = "host-file"
_ANSWER_SECONDS: Final = 5
_LIMIT_SECONDS: Final = 30.0
_AT_ONCE: Final = 16


def check_hosts(spec: StudySpec, pool: DevicePool | None) -> Iterator[Check]:
    """Does on each node what comes before ranks start: what dsopt does there, or the ssh of DeepSpeed's launcher."""
    if pool is None:
        yield skipped(NAME, "the devices cannot be used")
        return
    places, command = places_of(spec, pool), spec.resources
    if isinstance(places.placer, ChoosingPlacer):
        yield ok(NAME, f"{places.placer}; it chooses when a run begins")
    elif isinstance(places.placer, LeasingPlacer) and places.wanted is not None:
        yield from _check_starts({node: places.placer.reach(node, 1) for node in places.wanted.hosts})
    elif places.hosts and command.has_launcher_flag("--no_ssh"):
        yield skipped(NAME, f"{len(places.hosts)} nodes; with --no_ssh you start the command on each of them")
    elif places.hosts:
        yield from _check_ssh(list(places.hosts), command)
    else:
        yield skipped(NAME, "runs use this machine alone")


def _check_starts(reaches: Mapping[str, Reach]) -> Iterator[Check]:
    """Starts the program there that starts ranks; it ends at once, since nobody speaks to it."""
    programs = {node: reach.argv(own_program("dsopt.launch.part")) for node, reach in reaches.items()}
    own = [sys.executable, "-c", "import dsopt"]
    fixes = {
        node: f"Make this work, without a password: {shlex.join(reach.argv(own))}" for node, reach in reaches.items()
    }
    yield from _answers(programs, fixes)


def _check_ssh(nodes: Sequence[str], command: LaunchCommand) -> Iterator[Check]:
    """Asks each node to do nothing, as DeepSpeed's launcher does before it starts ranks with pdsh."""
    if command.option("--launcher") in (None, "pdsh") and shutil.which("pdsh") is None:
        yield problem(NAME, "DeepSpeed starts ranks on other nodes with pdsh, which is not installed", "Install pdsh")
    port = command.option("--ssh_port")
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_ANSWER_SECONDS}", *(["-p", port] if port else [])]
    programs = {node: ["ssh", *options, "--", node, "true"] for node in nodes}
    fixes = {node: f"Make this work without a password: {' '.join(words)}" for node, words in programs.items()}
    yield from _answers(programs, fixes)


def _answers(programs: Mapping[str, Sequence[str]], fixes: Mapping[str, str]) -> Iterator[Check]:
    missing = {words[0] for words in programs.values() if shutil.which(words[0]) is None}
    for name in sorted(missing):
        yield problem(NAME, f"there is no {name} here", "Install it, such as openssh-client for ssh")
    if missing:
        return
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = dict(zip(programs, threads.map(_trouble, programs.values()), strict=True))
    yield from (
        problem(NAME, f"{node} does not answer: {wrong}", fixes[node]) for node, wrong in answers.items() if wrong
    )
    if not any(answers.values()):
        yield ok(NAME, f"all nodes answer: {', '.join(programs)}")


def _trouble(words: Sequence[str]) -> str:
    [ended] = run_all([Program(argv=words, environment=own_environment(), cwd=Path.cwd())], seconds=_LIMIT_SECONDS)
    if ended.code is None:
        return f"no answer within {_LIMIT_SECONDS:.0f} seconds"
    return ended.last_words if ended.code else ""
