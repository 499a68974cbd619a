"""What a cluster may leave behind: processes, shared memory, mounts."""

import contextlib
from pathlib import Path

import psutil

_NAMES = ("slurm", "munge", "ray", "plasma")  # of shared memory; other programs of this machine make some, too


def present(folder: Path) -> set[str]:
    """What is here now and may be of a cluster in this folder, in words.

    These are the processes that have the folder in their command, variables or working directory, the mounts, and
    shared memory.
    """
    words = {f"mount {line.split()[1]}" for line in Path("/proc/self/mounts").read_text().splitlines()}
    words |= {f"shared memory {path.name}" for path in Path("/dev/shm").iterdir() if path.name.startswith(_NAMES)}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if str(folder) in " ".join([*process.cmdline(), *process.environ().values(), process.cwd()]):
                words.add(f"process {process.pid} {process.name()}")
    return words
