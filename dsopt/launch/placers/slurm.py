"""The nodes of a Slurm allocation: each node's part of a run is a job step of its own."""

import os
import re
import subprocess
from collections.abc import Mapping
from typing import ClassVar, Final

from dsopt.errors import DsoptError
from dsopt.launch.placement import Reach
from dsopt.launch.placers.placer import LeasingPlacer

_ASK_SECONDS: Final = 30.0
_DETAIL: Final = re.compile(r"^\s*Nodes=(\S+) .*\bGRES=(\S+)", re.MULTILINE)  # of some nodes, in what a job was given
_GPUS: Final = re.compile(r"\bgpu(?::[^:(,]+)?:(\d+)")  # as `gpu:2(IDX:0-1)` or `gpu:h100:8(IDX:0-7)`


class Slurm(LeasingPlacer):
    """The allocation that this process runs in (`sbatch`, `salloc`).

    Raises:
        DsoptError: it runs in none, or Slurm does not answer.
    """

    name: ClassVar = "Slurm"
    is_granting: ClassVar = True

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        listed, job = environment.get("SLURM_JOB_NODELIST"), environment.get("SLURM_JOB_ID")
        if not listed or not job:
            raise DsoptError(
                "--slurm: this is no Slurm allocation (SLURM_JOB_NODELIST is not set). Start the worker within one, "
                "such as: sbatch --nodes 2 --gpus-per-node 8 --wrap 'dsopt worker --slurm'"
            )
        nodes = _names(listed)
        self._cpus = dict(zip(nodes, _each(environment.get("SLURM_JOB_CPUS_PER_NODE", "1"), len(nodes)), strict=True))
        self._gpus = _gpus(job)
        # Slurm ends all steps of a job before it starts it anew: what they held, nobody has any more
        self.scope = f"{job}.{environment.get('SLURM_RESTART_COUNT', '0')}"

    @property
    def has_gpus(self) -> bool:
        """Whether the allocation has GPUs."""
        return bool(self._gpus)

    def hosts(self) -> Mapping[str, tuple[int, ...]]:
        """The GPUs of each node that has some, or the CPUs of each if the allocation has no GPUs."""
        counts = self._gpus or self._cpus
        return {node: tuple(range(counts[node])) for node in self._cpus if node in counts}

    def reach(self, node: str, devices: int) -> Reach:
        """By a job step with its share of the node: steps of other runs go on beside it."""
        cpus, all_gpus = self._cpus[node], self._gpus.get(node)
        own = max(1, cpus * devices // all_gpus) if all_gpus else devices
        gpus = (f"--gpus-per-node={devices}",) if all_gpus else ()
        return Reach(
            words=(
                *("srun", "--exact", "--nodes=1", "--ntasks=1", f"--nodelist={node}", f"--cpus-per-task={own}"),
                *(*gpus, "--mem=0", "--quiet", "--kill-on-bad-exit=1", "--unbuffered"),
            )
        )


def _names(listed: str) -> list[str]:
    """The nodes of a list such as `gpu[01-04]`."""
    return _told("show", "hostnames", listed).split()


def _gpus(job: str) -> dict[str, int]:
    """How many GPUs a job was given, by node; nodes without any are left out."""
    counts: dict[str, int] = {}
    for listed, gres in _DETAIL.findall(_told("show", "job", "--details", job)):
        count = sum(map(int, _GPUS.findall(gres)))
        counts |= dict.fromkeys(_names(listed), count) if count else {}
    return counts


def _told(*words: str) -> str:
    """What Slurm's controller answers."""
    try:
        told = subprocess.run(
            ["scontrol", *words],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
            timeout=_ASK_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise DsoptError(f"--slurm: `scontrol {' '.join(words)}` does not work: {said}") from None
    return told.stdout


def _each(told: str, nodes: int) -> list[int]:
    """The numbers of a text such as `64(x2),32`."""
    found = [
        int(number) for number, _, times in re.findall(r"(\d+)(\(x(\d+)\))?", told) for _ in range(int(times or 1))
    ]
    return (found or [1])[:nodes] + (found or [1])[-1:] * max(0, nodes - len(found or [1]))
