"""Trains a small GPT whose engine `torch.compile` has compiled, and prints how long its last steps took."""

import argparse
import statistics
import sys
import time
from pathlib import Path

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

sys.path.insert(0, str(Path(__file__).parents[2] / "studies" / "tiny-gpt"))
from train import TinyGPT

LENGTH, WARM_UP = 512, 15

parser = argparse.ArgumentParser()
parser.add_argument("--vocab", type=int, default=50304)
parser.add_argument("--hidden", type=int, default=1024)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--local_rank", type=int)
deepspeed.add_config_arguments(parser)
args = parser.parse_args()
model = TinyGPT(args.vocab, LENGTH, args.hidden, args.hidden // 64, args.layers, recompute=False)
engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
compiled = torch.compile(engine)
seconds = []
for _ in range(args.steps):
    tokens = torch.randint(args.vocab, (engine.train_micro_batch_size_per_gpu(), LENGTH + 1), device=engine.device)
    get_accelerator().synchronize()
    began = time.perf_counter()
    engine.backward(compiled(tokens))
    engine.step()
    get_accelerator().synchronize()
    seconds.append(time.perf_counter() - began)
    if len(seconds) > WARM_UP:
        print(f"median {statistics.median(seconds[WARM_UP:]):.6f} s", flush=True)
