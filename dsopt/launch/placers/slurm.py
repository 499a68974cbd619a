"""The nodes of a Slurm allocation: each node's part of a run is a job step of its own."""

import os
import re
import subprocess
from collections.abc import Mapping
from typing import ClassVar, Final

from dsopt.errors import DsoptError
from dsopt.launch.placement import Reach
from dsopt.launch.placers.placer import Placer

_ASK_SECONDS: Final = 30.0
_GPUS: Final = ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")


class Slurm(Placer):
    """The allocation that this process runs in (`sbatch`, `salloc`)."""

    name: ClassVar = "Slurm"
    is_granting: ClassVar = True

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        listed = environment.get("SLURM_JOB_NODELIST")
        if not listed:
            raise DsoptError(
                "--slurm: this is no Slurm allocation (SLURM_JOB_NODELIST is not set). Start the worker within one, "
                "such as: sbatch --nodes 2 --gpus-per-node 8 --wrap 'dsopt worker --slurm'"
            )
        self._nodes = _names(listed)
        self._cpus = _each(environment.get("SLURM_JOB_CPUS_PER_NODE", "1"), len(self._nodes))
        told = next((environment[name] for name in _GPUS if environment.get(name)), "")
        number = re.search(r"\d+$", told)  # as `8` or `h100:8`
        self._gpus = int(number.group()) if number else 0

    @property
    def has_gpus(self) -> bool:
        """Whether the allocation has GPUs."""
        return self._gpus > 0

    def hosts(self) -> Mapping[str, tuple[int, ...]]:
        """The GPUs of each node, or its CPUs if the allocation has none."""
        counts = [self._gpus] * len(self._nodes) if self._gpus else self._cpus
        return {node: tuple(range(count)) for node, count in zip(self._nodes, counts, strict=True)}

    def reach(self, node: str, devices: int) -> Reach:
        """By a job step with its share of the node: steps of other runs go on beside it."""
        cpus = dict(zip(self._nodes, self._cpus, strict=True))[node]
        own = max(1, cpus * devices // self._gpus) if self._gpus else devices
        gpus = (f"--gpus-per-node={devices}",) if self._gpus else ()
        return Reach(
            words=(
                *("srun", "--exact", "--nodes=1", "--ntasks=1", f"--nodelist={node}", f"--cpus-per-task={own}"),
                *(*gpus, "--mem=0", "--quiet", "--kill-on-bad-exit=1", "--unbuffered"),
            )
        )


def _names(listed: str) -> list[str]:
    """The nodes of a list such as `gpu[01-04]`."""
    try:
        told = subprocess.run(
            ["scontrol", "show", "hostnames", listed],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
            timeout=_ASK_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise DsoptError(f"--slurm: `scontrol show hostnames {listed}` does not work: {said}") from None
    return told.stdout.split()


def _each(told: str, nodes: int) -> list[int]:
    """The numbers of a text such as `64(x2),32`."""
    found = [
        int(number) for number, _, times in re.findall(r"(\d+)(\(x(\d+)\))?", told) for _ in range(int(times or 1))
    ]
    return (found or [1])[:nodes] + (found or [1])[-1:] * max(0, nodes - len(found or [1]))
