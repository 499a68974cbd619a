"""A DeepSpeed training script that goes wrong on request, in the ways that scripts do."""

import argparse
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("how")
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--deepspeed_config")
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()

if args.how == "ignores-deepspeed":
    print("trained without DeepSpeed")
    sys.exit(0)
if args.how == "hangs":
    time.sleep(600)
if args.how == "bears-no-fork" and "torch" in sys.modules:
    raise ValueError("torch was imported before me")

import deepspeed  # noqa: E402
import torch  # noqa: E402

if args.how == "makes-its-group":
    torch.distributed.init_process_group("gloo")
if args.how == "own-config":
    args.deepspeed_config = {
        "train_micro_batch_size_per_gpu": 5,
        "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
    }

model = torch.nn.Linear(64, 64)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=args.deepspeed_config)
if args.how == "keeps-its-engine":
    torch.kept = engine
for step in range(3 if args.how == "ends-early" else 10_000):
    size = 64 * 2**20 if args.how == "hogs" and step == 2 else args.batch_size
    if args.how == "raises" and step == 2 and args.local_rank == 1:
        raise ValueError("the second rank has had enough")
    batch = torch.ones(size, 64, device=engine.device, dtype=next(model.parameters()).dtype)
    loss = engine(batch).float().sum() * (float("nan") if args.how == "diverges" and step >= 2 else 1)
    engine.backward(loss)
    engine.step()
