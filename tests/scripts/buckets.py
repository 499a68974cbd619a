"""Prints what DeepSpeed allocates for the reduction, as JSON lines: stage, contiguous, overlap, sizes of the buckets.

One rank, a model of 16,640 parameters and buckets of a million elements each.
"""

import itertools
import json
import os

import deepspeed
import torch
from torch.distributed import HashStore, init_process_group

os.environ["LOCAL_RANK"] = "0"
BUCKET = 1_000_000
init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
allocated: list[int] = []
empty = torch.empty


def watched(*size: object, **options: object) -> torch.Tensor:
    if size[:1] == (BUCKET,):
        allocated.append(BUCKET)
    return empty(*size, **options)


torch.empty = watched
for stage, contiguous, overlap in itertools.product((1, 2, 3), (True, False), (True, False)):
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
    zero = {
        "stage": stage, "reduce_bucket_size": BUCKET, "contiguous_gradients": contiguous, "overlap_comm": overlap,
    }  # fmt: skip
    config = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_optimization": zero}
    allocated.clear()
    optimizer = torch.optim.AdamW(model.parameters())
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
    engine.backward(engine(empty(2, 64).normal_().bfloat16()).float().square().mean())
    engine.step()
    told = {"stage": stage, "contiguous": contiguous, "overlap": overlap, "elements": sum(allocated)}
    print(json.dumps(told), flush=True)
    engine.destroy()
