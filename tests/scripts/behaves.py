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


class Model(torch.nn.Linear):
    def forward(self, batch):
        if args.how == "catches-out-of-memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return super().forward(batch)


if args.how.startswith("has-a-teacher"):
    in_bf16 = args.how.endswith("bf16")
    zero = {"stage": 0 if in_bf16 else 3}
    teacher, *_ = deepspeed.initialize(
        model=torch.nn.Linear(64, 64),
        config={"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, "bf16": {"enabled": in_bf16}},
    )
model = Model(64, 64)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=args.deepspeed_config)
if args.how == "keeps-its-global-batch":
    engine.set_train_batch_size(32)
if args.how == "has-a-critic":
    critic = torch.nn.Linear(64, 1)
    deepspeed.initialize(model=critic, model_parameters=critic.parameters(), config=args.deepspeed_config)
if args.how == "keeps-its-engine":
    torch.kept = engine
forward = torch.compile(engine, backend="eager") if args.how == "compiles" else engine
if args.how == "evaluates-first":
    engine.eval()
    with torch.no_grad():
        engine(torch.ones(32, 64, device=engine.device, dtype=next(model.parameters()).dtype))
    engine.train()
if args.how == "stays-in-evaluation":
    model.eval()
for step in range(3 if args.how == "ends-early" else 10_000):
    size = 64 * 2**20 if args.how == "hogs" and step == 2 else args.batch_size
    if args.how == "raises" and step == 2 and args.local_rank == 1:
        raise ValueError("the second rank has had enough")
    batch = torch.ones(size, 64, device=engine.device, dtype=next(model.parameters()).dtype)
    if args.how == "evaluates-in-each-step":
        with torch.no_grad():
            engine(batch)
            time.sleep(0.05)
    if args.how.startswith("has-a-teacher"):
        with torch.no_grad():
            teacher(batch.to(next(teacher.parameters()).dtype))
    try:
        output = forward(batch)
    except torch.OutOfMemoryError:
        time.sleep(600)
    loss = output.float().sum() * (float("nan") if args.how == "diverges" and step >= 2 else 1)
    if args.how == "calls-backward-of-its-loss":
        loss.backward()
    else:
        engine.backward(loss)
    if args.how != "steps-when-it-likes" or step % 3 == 2:
        engine.step()
    if args.how.startswith("evaluates-between-steps") and step % 3 == 2:
        with torch.no_grad():
            (engine.module if args.how.endswith("by-its-module") else engine)(batch)
            time.sleep(0.5)
