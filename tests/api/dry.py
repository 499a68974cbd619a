"""A dry run that takes about a second, for tests of what is around a study."""

from pathlib import Path
from typing import Any

COMMAND = "deepspeed --num_nodes 2 --num_gpus 8 no-such-script.py --deepspeed_config ds.json".split()


def dry_run(folder: Path, **keys: object) -> dict[str, Any]:
    """What a study file of it would say."""
    return {
        "name": "dry",
        "command": COMMAND,
        "cwd": str(folder),
        "simulation": {"gpu": "A100-80GB", "model": "gpt2-xl", "seed": 3},
        "ds_config": {
            "train_micro_batch_size_per_gpu": [2, 4], "bf16": {"enabled": True}, "zero_optimization": {"stage": [1]},
        },
        "confirmation": {"finalists": 1, "rounds": 2},
        **keys,
    }  # fmt: skip
