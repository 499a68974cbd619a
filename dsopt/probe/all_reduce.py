"""One rank of a real all-reduce, which checks the sum.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=20000 python -m dsopt.probe.all_reduce gloo

`dsopt doctor` starts two. Each prints one line: "dsopt-result " and a JSON object.
"""

import json
import os
import sys
import time

_ELEMENTS = 1 << 20
_ROUNDS = 5


def main() -> None:
    """Takes part in the all-reduce, over the backend that the argument names."""
    import torch
    from torch import distributed

    backend, rank, size = sys.argv[1], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    distributed.init_process_group(backend)
    fastest = float("inf")
    for _ in range(_ROUNDS):
        numbers = torch.full((_ELEMENTS,), float(rank + 1), device=device)
        begun = time.monotonic()
        distributed.all_reduce(numbers)
        total = float(numbers[-1])  # waits for the device
        fastest = min(fastest, time.monotonic() - begun)
        if total != size * (size + 1) / 2:
            raise RuntimeError(f"the sum over the ranks is {total:g}, not {size * (size + 1) / 2:g}")
    distributed.destroy_process_group()
    print(f"dsopt-result {json.dumps({'seconds': fastest, 'mebibytes': _ELEMENTS * 4 / 2**20})}")  # noqa: T201


if __name__ == "__main__":
    main()
