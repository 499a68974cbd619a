"""Finds and ends every process of an attempt, by the run directory that it belongs to, never by name."""

import contextlib
import functools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

from dsopt.protocol.run_dir import RUN_DIR_VARIABLE, WORKERS_RUN_DIR_VARIABLE, RunDir

NODES_PATIENCE_SECONDS: Final = 10.0  # for a launcher that ends its ranks on other nodes
_DYING_SECONDS: Final = 120.0  # hundreds of GB of pinned host memory take long to free
_LOOK_SECONDS: Final = 0.005
_OF_A_RUN: Final = f"{RUN_DIR_VARIABLE}=".encode()


def process_folders() -> Iterator[Path]:
    """The folder in /proc of each process of this machine; it may be gone when somebody looks into it."""
    return (Path(entry.path) for entry in os.scandir("/proc") if entry.name.isdigit())


def variables_of(process: Path) -> list[bytes]:
    """The environment of a process, by its folder in /proc, as it was when it began, each as `NAME=value`.

    Raises:
        OSError: it has ended, or is another user's.
    """
    return (process / "environ").read_bytes().split(b"\0")  # not psutil's: that takes long for all of a machine


def processes_of(run_dir: Path) -> list[psutil.Process]:
    """The living processes of this run directory, whatever session or process group they moved to.

    They have it in their environment, unless they have overwritten that to change their title; or they write to its
    logs; or one of these has started them. The logs count in a folder that dsopt has made: a name of a folder may come
    from a database that somebody has altered, and programs of others have a stdout.log, too.
    """
    logs = (RunDir(run_dir).stdout, RunDir(run_dir).stderr) if is_marked(run_dir) else ()
    found: dict[int, psutil.Process] = {}
    for folder in process_folders():
        if int(folder.name) == os.getpid():
            continue
        try:
            if _is_of(folder, run_dir, logs):
                process = psutil.Process(int(folder.name))
                found[process.pid] = process
        except (psutil.Error, OSError):
            continue  # ended meanwhile, or another user's
    for process in list(found.values()):
        with contextlib.suppress(psutil.Error):
            found |= {child.pid: child for child in process.children(recursive=True)}
    return [process for process in found.values() if is_alive(process)]


def is_of_a_run(pid: int) -> bool:
    """Whether a process of this user belongs to a run of dsopt, whichever, as `processes_of` knows them."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.parents()]
    except psutil.Error:
        return False
    return any(_has_run(Path("/proc", str(member.pid))) for member in family)


def _has_run(process: Path) -> bool:
    """Whether a process, by its folder in /proc, has a run directory in its environment, or writes to logs of one."""
    with contextlib.suppress(OSError):
        if any(variable.startswith(_OF_A_RUN) for variable in variables_of(process)):
            return True
        for output in ("1", "2"):
            run_dir = RunDir((log := (process / "fd" / output).readlink()).parent)
            if log in (run_dir.stdout, run_dir.stderr) and is_marked(run_dir.path):
                return True
    return False


def run_dirs_here() -> Iterator[tuple[Path, Path]]:
    """The run directory of each of this user's living processes that has one, and the folder that it works in."""
    for process in process_folders():
        with contextlib.suppress(OSError):
            working = (process / "cwd").readlink()
            for variable in variables_of(process):
                if variable.startswith(_OF_A_RUN):
                    yield Path(os.fsdecode(variable[len(_OF_A_RUN) :])), working


def _is_of(process: Path, run_dir: Path, logs: Sequence[Path]) -> bool:
    """Whether a process, by its folder in /proc, belongs to a run directory with these logs."""
    wanted = {os.fsencode(f"{name}={run_dir}") for name in (RUN_DIR_VARIABLE, WORKERS_RUN_DIR_VARIABLE)}
    if not wanted.isdisjoint(variables_of(process)):
        return True
    return bool(logs) and any((process / "fd" / str(output)).readlink() in logs for output in (1, 2))


def is_marked(run_dir: Path) -> bool:
    """Whether a folder is that of a run of this user, and not only named by what measures a node."""
    try:
        return RunDir(run_dir).mark.exists()
    except OSError:  # another user's
        return False


def end_run(run_dir: RunDir) -> bool:
    """Ends the processes of a run whose worker does not: those on other nodes, too. Returns whether all here are gone.

    Only the launcher that started ranks on other nodes can end them, so this asks it first.
    """
    if os.path.exists(run_dir.node_environment):  # noqa: PTH110 - in a folder of another user's it is not, as this says
        _ask_launcher(run_dir.path)
    return kill_all(run_dir.path)


def _ask_launcher(run_dir: Path) -> None:
    processes = processes_of(run_dir)
    pids = {process.pid for process in processes}
    first = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.ppid() not in pids:
                process.terminate()
                first.append(process)
    psutil.wait_procs(first, timeout=NODES_PATIENCE_SECONDS)


def kill_all(run_dir: Path, *, also: Iterable[psutil.Process] = ()) -> bool:
    """Kills the processes of a run directory, and `also` these, and waits until they are gone.

    The kernel takes a while to free what a killed process has, such as a GPU's memory, and the process no longer shows
    meanwhile whose it is.

    Returns:
        Whether they are gone.
    """
    deadline = time.monotonic() + _DYING_SECONDS
    dying = set(also)
    while dying := {process for process in dying | set(processes_of(run_dir)) if is_alive(process)}:
        for process in dying:
            with contextlib.suppress(psutil.Error):
                process.kill()
        while any(map(is_alive, dying)):
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
    return True


def start_ticks(pid: int) -> float | None:
    """When a process started, in clock ticks since the boot, or None if it is gone: a pid alone may be reused.

    No step of the machine's clock changes it, unlike psutil's `create_time`.
    """
    state, *fields = _stat(pid)
    return None if state in "ZX" else float(fields[18])


def is_gone(pid: int, started: float | None) -> bool:
    """Whether a process that started then is surely gone. Some machines hide those of other users (`hidepid`)."""
    if _stat(pid)[0] != "X":
        return start_ticks(pid) != started
    try:
        os.kill(pid, 0)  # a signal that does nothing
    except ProcessLookupError:
        return True
    except OSError:  # it is another user's
        return False
    return False


def is_stopped(pid: int) -> bool:
    """Whether somebody stopped a process (SIGSTOP, Ctrl-Z)."""
    return _stat(pid)[0] == "T"


def _stat(pid: int) -> list[str]:
    """What the system says of a process, from its state on; of one that is gone, what it says of a dead one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ["X"]
    return stat.rpartition(") ")[2].split()  # the name before it may hold anything


@functools.cache
def host_identity() -> str:
    """This boot, pid and time namespace: two processes must share them for pid and start to mean the same to both."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    spaces = [Path("/proc/self/ns", kind) for kind in ("pid", "time")]
    return "/".join([boot, *(str(space.stat().st_ino) for space in spaces if space.exists())])  # old kernels have one


def is_alive(process: psutil.Process) -> bool:
    """Whether some thread of it is: the first may be a zombie while others still free what the process has."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE and _count_threads(process) == 1:
            return False
        return process.is_running()  # not another one with its number
    except (psutil.Error, OSError):
        return False


def _count_threads(process: psutil.Process) -> int:
    return sum(1 for _ in Path(f"/proc/{process.pid}/task").iterdir())
