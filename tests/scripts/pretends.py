"""A training script that speaks the run protocol without training, on each of its ranks.

Its step time follows from stage, micro-batch size and ranks. `PRETENDED_SECONDS` is how long it pretends to start, and
`PRETENDED_UNTIL` a file that it then waits for. `PRETENDED_MEETING` is an empty folder in which the second run of a
study waits for the third: after the baseline, two go on side by side, or none does.
"""

import argparse
import json
import os
import socket
import time
import uuid
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
parser.add_argument("--deepspeed_config")
config = json.loads(Path(parser.parse_args().deepspeed_config).read_text())
stage, micro_batch = config.get("zero_optimization", {}).get("stage", 0), config["train_micro_batch_size_per_gpu"]
gas, rank, ranks = config.get("gradient_accumulation_steps", 1), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
time.sleep(float(os.environ.get("PRETENDED_SECONDS", "0.2")))
os.write(1, f"rank {rank} of {ranks} on {os.uname().nodename}\n".encode())
while "PRETENDED_UNTIL" in os.environ and not Path(os.environ["PRETENDED_UNTIL"]).exists():
    time.sleep(0.02)
if "PRETENDED_MEETING" in os.environ and rank == 0:
    (Path(os.environ["PRETENDED_MEETING"]) / uuid.uuid4().hex).touch()
    while len(list(Path(os.environ["PRETENDED_MEETING"]).iterdir())) == 2:
        time.sleep(0.02)
meeting = os.environ.get("DSOPT_WORKERS_RUN_DIR")
if meeting and Path(meeting).is_dir():  # ranks of a training wait for each other, here where all nodes have the folder
    (Path(meeting) / f"rank-{rank}").touch()
    while len(list(Path(meeting).glob("rank-*"))) < ranks:
        time.sleep(0.02)
elif meeting and rank == 0:  # and without such a folder where a training meets
    with socket.create_server(("", int(os.environ["MASTER_PORT"]))) as server:
        met = [server.accept() for _ in range(ranks - 1)]
elif meeting:
    while True:
        try:
            met = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
            break
        except OSError:
            time.sleep(0.02)

with Path(os.environ["DSOPT_RUN_DIR"], f"events-rank{rank}.jsonl").open("a", buffering=1) as events:

    def emit(event: str, **fields: object) -> None:
        events.write(json.dumps({"v": 1, "event": event, "rank": rank, **fields}) + "\n")

    emit(
        "engine", world_size=ranks, num_params=10_000_000, trainable_params=10_000_000, device="pretended",
        device_memory_bytes=16 * 2**30, zero_stage=stage, micro_batch=micro_batch, gas=gas, dtype="fp32",
    )  # fmt: skip
    memory = 2 * 2**30 + micro_batch * 2**28
    emit("memory", peak_allocated_bytes=memory, peak_reserved_bytes=memory, activation_bytes=micro_batch * 2**28)
    seconds = gas * (0.010 + 0.001 * micro_batch) * (1.0, 0.9, 0.95, 1.3)[stage]
    for step in range(10_000 if rank == 0 else 0):
        noise = 1 + 0.002 * ((step * 7919) % 11 - 5) / 5
        emit("step", step=step, seconds=seconds * noise, samples=micro_batch * gas * ranks)
        time.sleep(0.01)
time.sleep(600)
