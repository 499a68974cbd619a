"""One rank of a short fixed run that shows how fast a node is: matrix products, copies, and a real all-reduce.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=20000 python -m dsopt.probe.node_speed gloo 60 $$

A worker starts one for each device, `dsopt doctor` two. The arguments are the backend, the seconds after which the
process ends, most of which are for imports, which take long on shared disks, and the process with which it ends, or 0.
Once all ranks are there, they measure for ten seconds at most. Each prints a line after each part, "dsopt-result " and
a JSON object with its rank and all that it knows: what was measured counts even if the rest takes too long.
"""

import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

_SIDE: Final = {"cuda": 8192, "cpu": 1024}  # of the matrices
_COPIED: Final = {"cuda": 1 << 28, "cpu": 1 << 26}  # bytes
_REDUCED: Final = {"cuda": 1 << 26, "cpu": 1 << 20}  # elements of four bytes
_MEASURING_SECONDS: Final = 10.0
_ROUNDS: Final = 5
_ENOUGH_SECONDS: Final = 0.5  # of a part, which has three rounds at least
_LEAST_ROUNDS: Final = 3
_LOOK_SECONDS: Final = 0.5


def main() -> None:
    """Takes part in the run, over the backend that the argument names."""
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
    threading.Thread(target=_end_with, args=(int(sys.argv[3]),), daemon=True).start()
    import torch
    from torch import distributed

    backend, rank, size = sys.argv[1], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))
    if size > 1:
        distributed.init_process_group(backend)
        distributed.all_reduce(torch.ones(1, device=device))  # NCCL connects the ranks at the first one
    signal.setitimer(signal.ITIMER_REAL, _MEASURING_SECONDS)
    known = {"matmul_tflops": _matrix_products(device)}
    _tell(rank, known)
    known["copy_gb_per_s"] = _copies(device)
    _tell(rank, known)
    if size > 1:
        known["all_reduce_gb_per_s"] = _all_reduce(device, rank, size)
        distributed.destroy_process_group()
        _tell(rank, known)


def _end_with(pid: int) -> None:
    """Ends this process once that one is gone: other ranks may never come then."""
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            os._exit(1)
        except PermissionError:  # it is another user's
            pass
        time.sleep(_LOOK_SECONDS)


def _matrix_products(device: "torch.device") -> float:
    """10^12 floating-point operations a second: of half precision on a GPU, of single precision on a CPU."""
    import torch

    side = _SIDE[device.type]
    kind = torch.float16 if device.type == "cuda" else torch.float32
    one, other = (torch.randn(side, side, device=device).to(kind) for _ in range(2))
    into = torch.empty(side, side, device=device, dtype=kind)
    return 2 * side**3 / _seconds(lambda: torch.mm(one, other, out=into), device) / 1e12


def _copies(device: "torch.device") -> float:
    """10^9 bytes a second that are read, and as many that are written, within the memory of a device."""
    import torch

    one = torch.ones(_COPIED[device.type], dtype=torch.uint8, device=device)
    into = torch.empty_like(one)
    return _COPIED[device.type] / _seconds(lambda: into.copy_(one), device) / 1e9


def _all_reduce(device: "torch.device", rank: int, size: int) -> float:
    """10^9 bytes a second that each rank sends and receives in a ring, however many ranks there are."""
    import torch
    from torch import distributed

    count = _REDUCED[device.type]
    numbers = torch.empty(count, device=device)

    def reduce() -> None:
        distributed.all_reduce(numbers.fill_(float(rank + 1)))

    seconds = _seconds(reduce, device, rounds=_ROUNDS)
    total = float(numbers[-1])
    if total != size * (size + 1) / 2:
        raise RuntimeError(f"the sum over the ranks is {total:g}, not {size * (size + 1) / 2:g}")
    return 2 * (size - 1) / size * 4 * count / seconds / 1e9


def _seconds(act: Callable[[], object], device: "torch.device", rounds: int | None = None) -> float:
    """The median duration of what a device does, after a first time that does not count."""
    import torch

    wait = torch.cuda.synchronize if device.type == "cuda" else _wait_for_nothing
    act()
    wait()
    taken: list[float] = []
    while len(taken) < (rounds or _LEAST_ROUNDS) or (rounds is None and sum(taken) < _ENOUGH_SECONDS):
        begun = time.perf_counter()
        act()
        wait()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _wait_for_nothing() -> None:
    """A CPU has done its work when it returns."""


def _tell(rank: int, known: Mapping[str, float]) -> None:
    rounded = {"rank": rank, **{name: float(f"{value:.4g}") for name, value in known.items()}}
    print(f"dsopt-result {json.dumps(rounded)}", flush=True)  # noqa: T201 - who started this reads it


if __name__ == "__main__":
    main()
