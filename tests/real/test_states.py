"""What engines hold for one parameter is read from them, also with unusual optimizers and data types."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsopt.launch.devices import free_ports

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("real")]  # it builds operators

PROGRAM = """
import json, sys
import deepspeed, torch
from dsopt.probe.device import HostDevice
from dsopt.probe.model import describe
from dsopt.probe.states import held_by

class EightBit(torch.optim.Optimizer):
    # two moments of a byte for each parameter, as in 8-bit Adam

    def step(self, closure=None):
        for weight in (weight for group in self.param_groups for weight in group["params"]):
            for moment in ("state1", "state2"):
                self.state[weight].setdefault(moment, torch.zeros_like(weight, dtype=torch.uint8))

optimizers = {
    "eight-bit": lambda weights: EightBit(weights, {}),
    "sgd": lambda weights: torch.optim.SGD(weights, lr=1e-3),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=1e-3, momentum=0.9),
    "adam": lambda weights: torch.optim.AdamW(weights, lr=1e-3),
}
for optimizer, config in json.loads(sys.argv[1]):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizers[optimizer](model.parameters()),
        config={"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True, **config},
    )
    dtype = torch.bfloat16 if engine.bfloat16_enabled() else torch.float32
    for _ in range(2):
        engine.backward(engine(torch.ones(2, 64, dtype=dtype)).float().sum())
        engine.step()
    held, told = held_by(engine, 0), describe(engine, HostDevice(), 0, 0)
    bytes_held = [held.weight_bytes, held.gradient_bytes, held.optimizer_bytes]
    print("found", json.dumps([*bytes_held, told.dtype, told.autocast]))
"""

BF16 = {"bf16": {"enabled": True}}
ALL_BF16 = {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}


def zero(stage: int, **config: object) -> dict[str, object]:
    return {"zero_optimization": {"stage": stage, "reduce_bucket_size": 10_000}, **config}


CASES = [
    ("sgd", zero(0), [4, 4, 0, "fp32", ""]),
    ("momentum", zero(0), [4, 4, 4, "fp32", ""]),
    ("sgd", zero(1, **BF16), [2, 2, 4, "bf16", ""]),
    ("sgd", zero(2), [4, 4, 0, "fp32", ""]),
    ("sgd", zero(3, **BF16), [2, 2, 4, "bf16", ""]),
    ("momentum", zero(3, **BF16), [2, 2, 8, "bf16", ""]),
    ("adam", zero(1, **BF16, data_types={"grad_accum_dtype": "fp32"}), [2, 4, 12, "bf16", ""]),
    ("adam", zero(2, bf16={"enabled": True, **ALL_BF16}), [2, 2, 6, "bf16", ""]),
    ("adam", zero(3, bf16={"enabled": True, **ALL_BF16}), [2, 2, 6, "bf16", ""]),
    ("eight-bit", zero(0), [4, 4, 2, "fp32", ""]),
    ("eight-bit", zero(2, **BF16), [2, 2, 6, "bf16", ""]),
    ("adam", zero(2, torch_autocast={"enabled": True, "dtype": "bfloat16"}), [4, 4, 8, "fp32", "bf16"]),
]


def test_what_is_held_is_seen(tmp_path: Path) -> None:
    one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([case[:2] for case in CASES])],
        env={**os.environ, **one_rank, "MASTER_PORT": str(next(free_ports()))},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line.partition(" ")[2]) for line in done.stdout.splitlines() if line.startswith("found ")]
    for (*case, expected), seen in zip(CASES, found, strict=True):
        assert seen[:3] == pytest.approx(expected[:3], rel=0.01), case
        assert seen[3:] == expected[3:], case
