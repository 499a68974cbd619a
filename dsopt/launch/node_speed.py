"""Measures how fast the devices of this node are, with a short fixed run on all of them at once."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from dsopt.launch.devices import DevicePool, free_ports
from dsopt.launch.limited import Ended, Program, run_all
from dsopt.launch.training import Training, result_of
from dsopt.study.node_rates import NodeRates, rates_of

MODULE: Final = "dsopt.probe.node_speed"
MOST_SECONDS: Final = 70.0  # ten of which, at most, are the measuring itself; the others are for imports
_CPU_RANKS: Final = 2  # CPU slots share what the machine has: more of them show nothing else


def programs_of(training: Training, pool: DevicePool, ranks: int, seconds: float, **variables: str) -> list[Program]:
    """The ranks of a run on a pool's first devices. Each ends with this process, or a second after these seconds."""
    is_gpu = pool.kind == "gpu"
    devices = ",".join(pool.uuids[index] for index in pool.indices[:ranks]) if is_gpu else None
    args = (backend_of(pool.kind), str(seconds + 1), str(os.getpid()))
    return [
        training.program(MODULE, *args, cwd=Path("/"), **rank, **variables)
        for rank in variables_of(ranks, next(free_ports()), devices)
    ]


def variables_of(ranks: int, port: int, devices: str | None) -> list[Mapping[str, str]]:
    """The environment of each rank on one node; `devices`: what it sees of GPUs, None: all that it is given."""
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if devices is not None:
        common["CUDA_VISIBLE_DEVICES"] = devices
    return [{**common, "RANK": rank, "LOCAL_RANK": rank} for rank in map(str, range(ranks))]


def backend_of(kind: str) -> str:
    """What ranks on devices of a kind speak with each other."""
    return "nccl" if kind == "gpu" else "gloo"


def ranks_of(kind: str, devices: int) -> int:
    """How many ranks show what so many devices of a node do."""
    return devices if kind == "gpu" else min(_CPU_RANKS, devices, os.cpu_count() or 1)


class Unmeasured(Exception):  # noqa: N818 - no error: runs begin all the same
    """The devices of a node have not shown their speed. The message says why."""


def measure(
    training: Training, pool: DevicePool, run_dir: Path, *, should_end: Callable[[], bool] = lambda: False
) -> NodeRates:
    """What the devices of a pool do.

    Args:
        training: what runs of the study start with.
        pool: devices that nobody else uses meanwhile.
        run_dir: what the processes are known by; it need not be there.
        should_end: asked meanwhile whether it is to end at once.

    Raises:
        Unmeasured: a rank failed, or has not shown in time what it does.
    """
    ranks = ranks_of(pool.kind, len(pool.indices))
    programs = programs_of(training, pool, ranks, MOST_SECONDS, DSOPT_RUN_DIR=str(run_dir))
    ended = run_all(programs, seconds=MOST_SECONDS, should_end=should_end)
    rates = rates_of([result_of(one) for one in ended])
    if rates is None:
        raise Unmeasured(_why(ended))
    return rates


def _why(ended: Sequence[Ended]) -> str:
    failed = next((one for one in ended if one.code not in (None, 0, -signal.SIGALRM)), None)
    return "they were not done in time" if failed is None else failed.last_words
