"""What ZeRO holds on a device beside model states and activations: buckets in transit, and gathered parameters."""

import math

from dsopt.estimates.zero_memory import ELEMENT_BYTES, reduce_buffer_elements
from dsopt.search.facts import ModelFacts
from dsopt.search.sharding import Sharding
from dsopt.search.zero_settings import ZeroSettings
from dsopt.study.ds_config import get_path
from dsopt.study.space import ZERO, Setting
from dsopt.study.spec import StudySpec


def reduce_buffers(spec: StudySpec, facts: ModelFacts, zero: ZeroSettings, stage: int, setting: Setting) -> float:
    """Buckets of gradients in transit, in bytes.

    ZeRO 1 and 2 allocate them in a backward pass and free them after it. On the CPU, a process does not show them
    unless it runs into a limit: its pages count when they are written to.
    """
    bucket, trainable = zero(stage, setting, f"{ZERO}reduce_bucket_size"), facts.trainable_params
    is_seen = stage == 3 or _is_gpu(facts) or spec.memory_per_device is not None
    elements = reduce_buffer_elements(
        stage,
        bucket_size=_number(bucket) if is_seen else min(_number(bucket), trainable),
        trainable=trainable,
        is_contiguous=zero(stage, setting, f"{ZERO}contiguous_gradients") is not False,
        overlaps=zero(stage, setting, f"{ZERO}overlap_comm") is True,
    )
    return elements * facts.held.gradient


def live_parameters(facts: ModelFacts, zero: ZeroSettings, stage: int, setting: Setting) -> float:
    """Gathered parameters at ZeRO 3: those in use (`stage3_max_live_parameters`) and those fetched ahead."""
    if stage < 3:
        return 0.0
    live = _number(zero(stage, setting, f"{ZERO}stage3_max_live_parameters"))
    ahead = _number(zero(stage, setting, f"{ZERO}stage3_prefetch_bucket_size"))
    return min(live + ahead, facts.num_params) * facts.held.weight


def step_copies(spec: StudySpec, facts: ModelFacts, zero: ZeroSettings, sharding: Sharding, setting: Setting) -> float:
    """What an optimizer step holds beside all states, in bytes: an fp32 copy of gradients, or temporaries as large.

    On a GPU, PyTorch's own Adam (`torch_adam`) holds both in mixed precision: it takes the roots of all second moments
    at once. ZeRO 3 steps one `sub_group_size` after the other. Optimizers that keep less than fp32 compute in less.

    Sources: `step` in `deepspeed/runtime/zero/stage_1_and_2.py` and `_prepare_fp32_grad_for_sub_group` in `stage3.py`,
    0.19.8; `_multi_tensor_adam` in `torch/optim/adam.py`, 2.13; an H100 (`benchmarks/gpu/h100`).
    """
    updated = sharding.updated_params(facts)
    if sharding.stage == 3:
        updated = min(updated, _number(zero(3, setting, f"{ZERO}sub_group_size")) or math.inf)
    is_mixed = facts.held.weight < ELEMENT_BYTES["fp32"]
    has_both = is_mixed and _is_gpu(facts) and get_path(spec.own_config, "optimizer.params.torch_adam") is True
    return (2 if has_both else 1) * min(4.0, facts.held.optimizer / 2) * updated


def _is_gpu(facts: ModelFacts) -> bool:
    return facts.device not in ("", "cpu") or facts.outside_bytes > 0


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
