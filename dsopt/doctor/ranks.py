"""A real all-reduce between two ranks of this machine."""

from collections.abc import Iterator
from typing import Final

from dsopt.doctor.check import Check, ok, problem, skipped
from dsopt.launch.devices import DevicePool
from dsopt.launch.limited import Ended, run_all
from dsopt.launch.node_speed import programs_of
from dsopt.launch.training import Training, result_of
from dsopt.study.node_rates import rates_of

NAME: Final = "all-reduce"
LIMIT_SECONDS: Final = 60.0
_RANKS: Final = 2
_REMEDIES: Final = {
    "gloo": "export GLOO_SOCKET_IFNAME=lo, or let /etc/hosts name the address of this machine's own hostname",
    "nccl": "NCCL_DEBUG=INFO tells the cause; give a container --shm-size=8g --ipc=host; try NCCL_P2P_DISABLE=1",
}


def check_all_reduce(training: Training, pool: DevicePool | None, *, seconds: float = LIMIT_SECONDS) -> Iterator[Check]:
    """Two ranks add their numbers: over NCCL on two GPUs, or over gloo on the CPU. Nothing of them is left."""
    if pool is None:
        yield skipped(NAME, "the devices cannot be used")
        return
    if pool.kind == "gpu" and len(pool.indices) < _RANKS:
        yield skipped(NAME, "there is one GPU: its ranks have nobody to talk to")
        return
    backend = "nccl" if pool.kind == "gpu" else "gloo"
    yield _judge(run_all(programs_of(training, pool, _RANKS, seconds), seconds=seconds), backend, seconds)


def _judge(ended: list[Ended], backend: str, seconds: float) -> Check:
    rates = rates_of([result_of(one) for one in ended])
    if rates is not None and rates.all_reduce_gb_per_s is not None and not any(one.code for one in ended):
        return ok(NAME, f"two ranks over {backend}: {rates}")
    failed = next((one for one in ended if one.code), None)
    if failed is not None:
        return problem(NAME, f"two ranks over {backend}: {failed.last_words}", _REMEDIES[backend])
    return problem(NAME, f"two ranks over {backend} did not find each other in {seconds:g} seconds", _REMEDIES[backend])
