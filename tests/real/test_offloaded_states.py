"""What DeepSpeed holds in host memory with an offloaded optimizer is what the estimate says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsopt.estimates.zero_memory import Offload, host_state_bytes
from dsopt.launch.devices import free_ports

ENGINES = """
import json, sys
import deepspeed, torch

for stage, dtype, gas in json.loads(sys.argv[1]):
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 512))
    params = sum(parameter.numel() for parameter in model.parameters())
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": gas,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": dtype == "bf16"},
        "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu", "pin_memory": False}},
    }
    optimizer = torch.optim.Adam(model.parameters())
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for _ in range(2 * gas):
        rows = torch.ones(2, 512, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32)
        engine.backward(engine(rows).float().sum())
        engine.step()
    zero = engine.optimizer
    names = ("single_partition_of_fp32_groups", "param_buffer_of_bit16_for_cpu_offload_groups")
    if stage == 3:
        names = ("fp32_partitioned_groups_flat", "grad_partitions_flat_buffer")
    held = []
    for name in names:
        value = getattr(zero, name)
        held += [value] if isinstance(value, torch.Tensor) else value
    held += [tensor.grad for tensor in held if tensor.grad is not None]
    held += getattr(zero, "accumulated_grads_in_cpu", {}).values()
    held += [value for state in zero.optimizer.state.values() for value in state.values() if value.numel() > 1]
    held_bytes = sum(tensor.numel() * tensor.element_size() for tensor in held)
    print("found", json.dumps({"params": params, "bytes": held_bytes}))
"""
CASES = [(1, "bf16", 1), (1, "fp32", 2), (2, "bf16", 2), (2, "fp32", 1), (2, "fp32", 2), (3, "bf16", 2), (3, "fp32", 1)]


@pytest.mark.real
def test_the_estimate_is_what_engines_hold(tmp_path: Path) -> None:
    one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", ENGINES, json.dumps(CASES)],
        env={**os.environ, **one_rank, "MASTER_PORT": str(next(free_ports()))},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line.partition(" ")[2]) for line in done.stdout.splitlines() if line.startswith("found ")]
    for (stage, dtype, gas), found in zip(CASES, told, strict=True):
        counted = {"params": found["params"], "trainable": found["params"], "ranks": 1, "ranks_per_node": 1}
        offload = Offload(optimizer="cpu")
        estimate = host_state_bytes(stage, **counted, dtype=dtype, offload=offload, accumulates=gas > 1)
        assert found["bytes"] == pytest.approx(estimate, rel=0.01), (stage, dtype, gas)
