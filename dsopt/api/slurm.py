"""A batch script for Slurm: a worker on each node works on a study, is drained before the limit, and queued again."""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dsopt.api.storage import (
    STORAGE_FILE_VARIABLE,
    STORAGE_VARIABLE,
    chosen_storage,
    opened,
)
from dsopt.errors import DsoptError
from dsopt.study.spec import StudySpec
from dsopt.version import __version__

_TIME: Final = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d+){0,2})")
_LEAST_DRAIN: Final = 90  # seconds: Slurm may be a minute early, and a worker needs some to give back its runs
_LAST_SECONDS: Final = 60  # of the time: what still runs is given back, and the job is queued again
_FIXED: Final = ("--ntasks-per-node=1", "--requeue", "--open-mode=append")
_OWN_OPTIONS: Final = frozenset(
    "job-name nodes ntasks-per-node gpus-per-node cpus-per-task time requeue signal open-mode output chdir".split()
)

_SCRIPT: Final = """\
#!/bin/bash
{options}
# Printed by dsopt {version}. {who} works on the study until it is finished. If the time is too short,
# current runs end first, and the job is queued again.

export PATH={programs}:"$PATH"
{storage}

# What Slurm sends to a step reaches each of its processes, training ranks included. So workers hear it from here.
{tell}
drain() {{
    is_drained=yes
    tell USR1
    {{ sleep {patience}; tell TERM; }} &
    timer=$!
}}
is_drained=no
trap drain USR1

{start} &
workers=$!
while wait "$workers"; code=$?; kill -0 "$workers" 2> /dev/null; do :; done # a signal ends a wait

if [ "$is_drained" = yes ]; then
    kill "$timer" 2> /dev/null
    dsopt study best {name} > /dev/null 2>&1 || scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""
_TELL_EACH: Final = """\
pids={pids}-"$SLURM_JOB_ID"
trap 'rm -f "$pids"-*' EXIT
tell() {{
    srun --export=ALL --overlap --mem=0 --ntasks-per-node=1 \\
        bash -c 'kill -s "$1" "$(cat "$0-$SLURM_NODEID")"' "$pids" "$1"
}}"""
_START_EACH: Final = """\
srun --export=ALL --mem=0 --ntasks-per-node=1 --kill-on-bad-exit=0 {cpus}\\
    bash -c 'trap "" USR1; echo "$$" > "$0-$SLURM_NODEID" && exec dsopt worker "$1"' "$pids" {name}"""
_TELL_ONE: Final = 'tell() { kill -s "$1" "$workers"; }'
_START_ONE: Final = "{{ trap '' USR1; exec dsopt worker {name} --slurm; }}"


def slurm_script(
    study: str,
    *,
    nodes: int | None = None,
    time: str,
    gpus_per_node: int | None = None,
    cpus_per_task: int | None = None,
    drain_seconds: int | None = None,
    log: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
    storage: str | None = None,
) -> str:
    """A script for `sbatch` that works on a study: with one worker if a run takes several nodes, else one on each.

    Args:
        study: its name.
        nodes: of the job. More than one worker needs PostgreSQL. None: as many as a run takes.
        time: the job's limit, as Slurm takes it: `4:00:00`, `1-12`, or minutes.
        gpus_per_node: None: as many as a run of the study takes; 0: none.
        cpus_per_task: of each worker; None: what the cluster gives.
        drain_seconds: how long before the limit workers begin no more runs. None: as long as a run may take
            (`timeout_seconds`), at most a quarter of the time.
        log: the file for what the job prints, with Slurm's patterns; None: `dsopt-STUDY-%j.log`. Relative to the
            study's working folder.
        options: further ones of sbatch, such as `--partition=gpu`.
        storage: URL of the database; by default as for `load_study`.

    Returns:
        The script. It holds no password: the database is one without, or in the file that DSOPT_STORAGE_FILE names.

    Raises:
        DsoptError: there is no such study, a value is none that Slurm can take, or the script would hold a password.
    """
    with opened(storage) as store:
        spec = store.read(study).spec
    nodes = _nodes(nodes, of_run := 1 if spec.is_simulated else spec.resources.nodes, study)
    _check(nodes=nodes, cpus_per_task=cpus_per_task)
    drain = _drain_seconds(drain_seconds, _seconds(time), spec)
    resources = {"nodes": nodes, "gpus-per-node": _gpus(gpus_per_node, spec) or None, "cpus-per-task": cpus_per_task}
    own = {**resources, "time": time, "signal": f"B:USR1@{drain}", **_places(spec, log)}
    lines = [*_FIXED, *(f"--{key}={value}" for key, value in own.items() if value is not None)]
    return _SCRIPT.format(
        options="\n".join(f"#SBATCH {line}" for line in [*lines, *map(_checked_option, options)]),
        version=__version__,
        programs=shlex.quote(str(Path(sys.executable).parent)),
        storage=_storage_line(storage, 1 if of_run > 1 else nodes),
        **(_one_worker(study) if of_run > 1 else _worker_each(spec, cpus_per_task)),
        patience=drain - _LAST_SECONDS,
        name=study,
    )


def _nodes(given: int | None, of_run: int, study: str) -> int:
    """How many nodes the job has."""
    if given is not None and 1 <= given < of_run:
        raise DsoptError(f"--nodes: {given}. A run of study '{study}' takes {of_run}. Expected at least that many.")
    return of_run if given is None else given


def _one_worker(study: str) -> dict[str, str]:
    """The parts of a script with one worker for all nodes."""
    return {"who": "One worker for all nodes", "tell": _TELL_ONE, "start": _START_ONE.format(name=study)}


def _worker_each(spec: StudySpec, cpus_per_task: int | None) -> dict[str, str]:
    """The parts of a script with a worker on each node."""
    cpus = f"--cpus-per-task={cpus_per_task} " if cpus_per_task else ""
    return {
        "who": "One worker on each node",
        "tell": _TELL_EACH.format(pids=shlex.quote(f"{spec.cwd}/.dsopt-worker")),
        "start": _START_EACH.format(cpus=cpus, name=spec.name),
    }


def _places(spec: StudySpec, log: str | os.PathLike[str] | None) -> dict[str, str]:
    """What the job is called, and the folder and file that it works with."""
    file = os.fspath(log) if log is not None else f"dsopt-{spec.name}-%j.log"
    return {
        "job-name": f"dsopt-{spec.name}",
        "chdir": _quoted(spec.cwd, "the study's cwd"),
        "output": _quoted(file, "--log"),
    }


def _check(**counts: int | None) -> None:
    """Refuses counts that are none."""
    for name, count in counts.items():
        if count is not None and count < 1:
            raise DsoptError(f"--{name.replace('_', '-')}: {count}. Expected at least 1.")


def _gpus(given: int | None, spec: StudySpec) -> int:
    gpus = spec.resources.ranks if given is None else given
    if gpus is None or gpus < 0:
        raise DsoptError(
            f"--gpus-per-node: {'the study names no number' if gpus is None else gpus}. "
            "Expected how many GPUs a node has, or 0 for none."
        )
    return gpus


def _seconds(time: str) -> int:
    """A limit as Slurm reads it, in seconds: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    found = _TIME.fullmatch(time)
    if found is None:
        raise DsoptError(
            f"--time: {time!r}. Expected hours, minutes and seconds such as 4:00:00, days-hours, or minutes."
        )
    parts = [int(part) for part in found["rest"].split(":")]
    if found["days"] is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, [*parts, 0][:2]
    total = ((int(found["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    if total <= 2 * _LEAST_DRAIN:
        raise DsoptError(f"--time: {time!r} is {total} seconds. Expected more than {2 * _LEAST_DRAIN}: runs need time.")
    return total


def _drain_seconds(given: int | None, limit: int, spec: StudySpec) -> int:
    if given is None:
        return max(_LEAST_DRAIN, min(int(spec.timeout_seconds) + _LAST_SECONDS, limit // 4))
    if not _LEAST_DRAIN <= given < limit - _LEAST_DRAIN:
        raise DsoptError(
            f"--drain-seconds: {given}. Expected from {_LEAST_DRAIN} to less than {limit - _LEAST_DRAIN}, so that "
            f"workers have time before and after, in the {limit} seconds of --time."
        )
    return given


def _checked_option(option: str) -> str:
    """One more line for sbatch."""
    found = re.fullmatch(r"--([a-z][a-z-]*)(?:=([^\s\"'\\]+))?", option)
    if found is None:
        raise DsoptError(f"--sbatch: {option!r}. Expected one of sbatch's options, such as --sbatch=--partition=gpu.")
    if found[1] in _OWN_OPTIONS:
        raise DsoptError(f"--sbatch: {option!r}: the script has --{found[1]} already. Use dsopt's own option.")
    return option


def _quoted(path: str, where: str) -> str:
    """A path as sbatch reads it in a script."""
    if re.search(r"[\"\\\x00-\x1f]", path):
        raise DsoptError(f"{where}: {path!r}: sbatch cannot read a path with quotes, backslashes or line breaks.")
    return f'"{path}"' if re.search(r"[\s']", path) else path


def _storage_line(storage: str | None, nodes: int) -> str:
    """How workers get to know the database, without a password in the script."""
    from dsopt.store.url import shown, storage_url

    url = storage_url(chosen_storage(storage))
    if url.drivername == "sqlite" and nodes > 1:
        raise DsoptError(
            f"--nodes: {nodes} nodes cannot share an SQLite database ({shown(url)}). Use one node, or PostgreSQL: "
            "docs/guides/postgres.md."
        )
    file = os.environ.get(STORAGE_FILE_VARIABLE)
    if storage is None and not os.environ.get(STORAGE_VARIABLE) and file:
        return f"export {STORAGE_FILE_VARIABLE}={shlex.quote(str(Path(file).absolute()))}"
    if url.password or any("pass" in key for key in url.query):
        raise DsoptError(
            f"--storage: {shown(url)}: the script would hold its password. Write the URL into a file that only you can "
            f"read, unset {STORAGE_VARIABLE}, and call this again with {STORAGE_FILE_VARIABLE}=FILE."
        )
    return f"export {STORAGE_VARIABLE}={shlex.quote(url.render_as_string(hide_password=False))}"
