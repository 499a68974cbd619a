"""Which ZeRO stages a setting of `zero_optimization` makes a difference at."""

from collections.abc import Mapping
from typing import Final

_ALL_OF_ZERO: Final = (1, 2, 3)
# What reads them in DeepSpeed 0.19: `_configure_zero_optimizer` in `deepspeed/runtime/engine.py` and the optimizers it
# makes. `allgather_partitions` is read by nothing, and `allgather_bucket_size` only where torch has no
# `all_gather_into_tensor`, which every torch that DeepSpeed still takes has. ZeRO 0 reads none of them.
_READ_AT: Final[Mapping[str, tuple[int, ...]]] = {
    "allgather_partitions": (),
    "allgather_bucket_size": (),
    "overlap_comm": _ALL_OF_ZERO,
    "reduce_scatter": _ALL_OF_ZERO,
    "reduce_bucket_size": _ALL_OF_ZERO,
    "contiguous_gradients": _ALL_OF_ZERO,
    "round_robin_gradients": (1, 2),
    "sub_group_size": (3,),
}


def makes_difference(path: str, value: object, stage: int) -> bool:
    """Whether a value makes a difference at a stage: a path in `zero_optimization`, such as `offload_param.device`."""
    if path.startswith("stage3_"):
        return stage == 3
    section, _, key = path.partition(".")
    if key:
        return stage >= least_stage(section, key, value) if section.startswith("offload_") else True
    return stage in _READ_AT.get(path, (stage,))


def least_stage(section: str, key: str, value: object) -> int:
    """The lowest stage that a key of an offload section can be had at with a value.

    Parameter offload, NVMe and partial offload (`ratio`) need ZeRO 3, and any offload ZeRO 1. Below that DeepSpeed 0.19
    fails (at ZeRO 0 its optimizer for the CPU refuses parameters on a GPU), or does something else in silence.
    """
    return 3 if section == "offload_param" or value == "nvme" or key == "ratio" else 1
