"""Which process has made a run's folder, and whether it still sees to the run."""

import contextlib
import os
import platform
from pathlib import Path
from typing import Literal

from dsopt.launch.processes import host_identity, is_gone, is_stopped, start_ticks
from dsopt.protocol.given import read_given_json
from dsopt.protocol.run_dir import RunDir

Maker = Literal["lives", "stopped", "gone", "unknown"]


def this_process() -> str:
    """What a run's folder tells of the process that makes it."""
    return f"{host_identity()} {os.getpid()} {start_ticks(os.getpid())} {platform.node()}"


def as_from_here(run_dir: RunDir) -> RunDir:
    """A run's folder, for whoever undoes it here: it may be of another machine that has the same files."""
    node = run_dir.maker.split(" ")[3:4]
    return RunDir(run_dir.path, node[0]) if node not in ([], [platform.node()]) else run_dir


def from_here(run_dir: RunDir) -> RunDir:
    """The same, where its working folder is the one that this machine has at its path, not another one of that name."""
    seen = as_from_here(run_dir)
    return seen if seen.host is None or _has_worked_here(run_dir) else run_dir


def _has_worked_here(run_dir: RunDir) -> bool:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, OverflowError):  # a script may write there
        before = read_given_json(run_dir.before)
        return bool(Path(before["folder"]).stat().st_ino == before["number"])
    return False


def is_seen_here(run_dir: RunDir) -> bool:
    """Whether processes of a run would be seen here: it is none of another machine, or of another container."""
    return run_dir.maker.split(" ")[0] in ("", host_identity())


def maker_of(run_dir: RunDir) -> Maker:
    """What has become of the worker that made a run.

    One that lives ends the run itself, and knows when: in time, if it is cut off from its database, and never too
    early, if somebody has copied that. One that somebody has stopped ends nothing. Unknown: it is this process, or
    another machine's or container's, or the folder does not tell.
    """
    host, *process = run_dir.maker.split(" ")
    try:
        pid, started = int(process[0]), float(process[1])
    except (IndexError, ValueError):
        return "unknown"
    if host != host_identity() or pid == os.getpid():
        return "unknown"
    if is_gone(pid, started):
        return "gone"
    return "stopped" if is_stopped(pid) else "lives"
