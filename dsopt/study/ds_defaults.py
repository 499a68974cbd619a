"""DeepSpeed's defaults in `zero_optimization`, for the keys that dsopt needs.

Source: `deepspeed/runtime/zero/config.py` of DeepSpeed 0.19.8; a test compares them with the installed DeepSpeed.
"""

from collections.abc import Mapping
from typing import Final

REDUCE_BUCKET_SIZE: Final = 500_000_000
ALLGATHER_BUCKET_SIZE: Final = 500_000_000
PREFETCH_BUCKET_SIZE: Final = 50_000_000
PARAM_PERSISTENCE_THRESHOLD: Final = 100_000

_ZERO: Final[Mapping[str, bool | int]] = {
    "contiguous_gradients": True,
    "reduce_scatter": True,
    "reduce_bucket_size": REDUCE_BUCKET_SIZE,
    "allgather_partitions": True,
    "allgather_bucket_size": ALLGATHER_BUCKET_SIZE,
    "stage3_prefetch_bucket_size": PREFETCH_BUCKET_SIZE,
    "stage3_param_persistence_threshold": PARAM_PERSISTENCE_THRESHOLD,
    "stage3_max_live_parameters": 1_000_000_000,
    "stage3_max_reuse_distance": 1_000_000_000,
    "stage3_gather_16bit_weights_on_model_save": False,
    "sub_group_size": 1_000_000_000,
}


def zero_defaults(stage: int) -> dict[str, bool | int]:
    """DeepSpeed's defaults in `zero_optimization` at a ZeRO stage, by key; only for keys that dsopt needs."""
    return {**_ZERO, "overlap_comm": stage == 3}
