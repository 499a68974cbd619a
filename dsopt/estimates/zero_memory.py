"""Memory for parameters, gradients and optimizer states under ZeRO, by its paper and by DeepSpeed's estimators.

The search and `estimates/fit.py` use the paper's formulas: they know data types and frozen parameters, and the search
fits what runs show on top (`search/memory.py`). DeepSpeed's estimators count 16-bit training of every parameter, with
some slack. Its users know them, and Hugging Face's document on DeepSpeed shows their tables.
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Dtype = Literal["fp16", "bf16", "fp32"]
OffloadDevice = Literal["none", "cpu", "nvme"]

ELEMENT_BYTES: Final = {"fp16": 2, "bf16": 2, "fp32": 4}  # of a weight and of a gradient

# DeepSpeed's `additional_buffer_factor`: host memory for buffers and copies, as a multiple of the states
_BUFFER_FACTOR = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """Where the optimizer states and the parameters live: `offload_optimizer.device` and `offload_param.device`."""

    optimizer: OffloadDevice = "none"
    param: OffloadDevice = "none"


NO_OFFLOAD = Offload()


class ParamBytes(NamedTuple):
    """Bytes that one parameter needs: its weight, its gradient, and its optimizer states, with an fp32 weight if any.

    The last two are of parameters that are trained.
    """

    weight: float
    gradient: float
    optimizer: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """A model as the formulas see it.

    Attributes:
        num_params: parameters of the whole model, counting shared ones once.
        trainable_params: those of them that are trained.
        largest_layer_params: the most parameters that one module has itself, without its children's.
        dtype: of weights and gradients; fp16 and bf16 are mixed precision with fp32 optimizer states.
    """

    num_params: int
    trainable_params: int
    largest_layer_params: int
    dtype: Dtype = "fp16"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMemory:
    """Bytes for model states: `host_bytes` on one node's CPU, `device_bytes` on one GPU."""

    host_bytes: int
    device_bytes: int


def device_state_bytes(
    stage: int,
    *,
    params: int,
    trainable: int,
    ranks: int,
    dtype: str,
    offload: Offload = NO_OFFLOAD,
    largest_layer: int | None = None,
    held: ParamBytes | None = None,
) -> float:
    """Bytes of parameters, gradients and optimizer states on one rank's device, with Adam.

    Of Ψ parameters on N ranks each rank keeps, in mixed precision: stage 0 16Ψ, 1 4Ψ + 12Ψ/N, 2 2Ψ + 14Ψ/N, 3 16Ψ/N;
    in fp32 16Ψ, 8Ψ + 8Ψ/N, 4Ψ + 12Ψ/N, 16Ψ/N. Only trainable parameters have gradients and optimizer states. Offloaded
    optimizer states leave the device, and where gradients are partitioned (stages 2 and 3), so do they. Of offloaded
    parameters the largest layer is on the device, with its gradients.

    Sources: ZeRO (Rajbhandari et al., 2020), section 3; ZeRO-Offload (Ren et al., 2021), section 3;
    ZeRO-Infinity (Rajbhandari et al., 2021), section 5.

    Args:
        params, trainable: parameters of the whole model, and those of them that are trained.
        ranks: of all nodes.
        dtype: fp16, bf16 or fp32.
        largest_layer: its parameters; only needed if parameters are offloaded.
        held: what a run was seen to hold, in place of what the data type and Adam need.

    Raises:
        ValueError: an offload that the stage does not have, or a missing `largest_layer`.
    """
    _check(stage, offload)
    weight, gradient, optimizer = held or bytes_per_param(dtype)
    weights = weight * params / (ranks if stage >= 3 else 1)
    gradients = gradient * trainable / (ranks if stage >= 2 else 1)
    optimizers = optimizer * trainable / (ranks if stage >= 1 else 1)
    if offload.optimizer != "none":
        optimizers = 0.0
        gradients = 0.0 if stage >= 2 else gradients
    if offload.param != "none":
        if largest_layer is None:
            raise ValueError("offload_param: what stays on the device depends on 'largest_layer', which is missing")
        weights = float(weight * largest_layer)
        gradients += gradient * min(largest_layer, trainable)
    return weights + gradients + optimizers


def host_state_bytes(
    stage: int,
    *,
    params: int,
    trainable: int,
    ranks: int,
    ranks_per_node: int,
    dtype: str,
    offload: Offload,
    held: ParamBytes | None = None,
    accumulates: bool = False,
) -> float:
    """Bytes of model states that offloading puts into the host memory of one node, with Adam.

    DeepSpeed holds more there than what leaves the devices: an fp32 weight, an fp32 gradient, the optimizer's states,
    and a buffer of weights (ZeRO 1 and 2) or gradients (ZeRO 3) in the data type of training; in mixed precision 18 B
    a parameter, in fp32 20 B. With more than one micro-step a step (`accumulates`), ZeRO 2 adds up gradients in another
    one. This does not count what the allocator of pinned memory adds, which rounds each block up to a power of two and
    so depends on the sizes of the model's layers, nor the copies that processes make while they build the model. States
    on NVMe only pass through buffers and do not count.

    Sources: `stage_1_and_2.py` and `stage3.py` in `deepspeed/runtime/zero`, 0.19.8, read from engines
    (`tests/real/test_offloaded_states.py`).

    Raises:
        ValueError: an offload that the stage does not have.
    """
    _check(stage, offload)
    weight, _, optimizer = held or bytes_per_param(dtype)
    fp32 = ELEMENT_BYTES["fp32"]
    master = fp32 if weight == fp32 else 0  # in mixed precision it is among the optimizer's states
    offloaded = 0.0
    if offload.optimizer == "cpu":
        added_up = weight if accumulates and stage == 2 else 0
        offloaded += (optimizer + master + fp32 + weight + added_up) * trainable
    if offload.param == "cpu":
        offloaded += weight * params
    return offloaded * ranks_per_node / ranks


def reduce_buffer_elements(
    stage: int, *, bucket_size: float, trainable: int, is_contiguous: bool, overlaps: bool
) -> float:
    """Elements of the buckets in which gradients wait to be reduced.

    With contiguous gradients, DeepSpeed allocates whole buckets, however small the model: at ZeRO 1 and 2 one in every
    backward pass, two if communication overlaps, and at ZeRO 3 one for good. Otherwise it puts gradients together when
    it sends them, in tensors no larger than all of them. ZeRO 0 has no such setting.

    Sources: `setup_buckets` in `deepspeed/runtime/zero/stage_1_and_2.py` and `_setup_for_real_optimizer` in
    `stage3.py`, 0.19.8.

    Args:
        bucket_size: `reduce_bucket_size`.
        trainable: parameters that have gradients.
        is_contiguous: `contiguous_gradients`.
        overlaps: `overlap_comm`.
    """
    if stage == 0:
        return 0.0
    size = bucket_size if is_contiguous else min(bucket_size, trainable)
    return size * (2 if overlaps and stage < 3 else 1)


def initial_host_bytes(params: int, gpus_per_node: int) -> int:
    """Host memory of one node while every process builds the whole model in fp32, before it moves to its device.

    This is what DeepSpeed's estimators give without offload and without `zero.Init`, whatever the stage.
    """
    return int(params * 4 * gpus_per_node * _BUFFER_FACTOR)


def deepspeed_zero2_estimate(params: int, *, gpus_per_node: int, nodes: int, offload_optimizer: bool) -> StateMemory:
    """DeepSpeed's estimate for ZeRO 2, mixed precision with Adam, every parameter trained.

    On the device 2Ψ + 18Ψ/N: 16-bit weights, and shares of 16-bit and fp32 gradients, fp32 weights and Adam's moments;
    with optimizer offload 2Ψ.

    Source: `estimate_zero2_model_states_mem_needs` in `deepspeed/runtime/zero/stage_1_and_2.py`, 0.19.8.
    """
    gpus = gpus_per_node * nodes
    if offload_optimizer:
        return StateMemory(host_bytes=int(params * max(4 * gpus, 16) * _BUFFER_FACTOR), device_bytes=2 * params)
    return StateMemory(
        host_bytes=initial_host_bytes(params, gpus_per_node), device_bytes=2 * params + int(18 * params / gpus)
    )


def deepspeed_zero3_estimate(
    params: int,
    largest_layer: int,
    *,
    gpus_per_node: int,
    nodes: int,
    offload_optimizer: bool,
    offload_param: bool,
    zero_init: bool,
) -> StateMemory:
    """DeepSpeed's estimate for ZeRO 3, mixed precision with Adam, every parameter trained.

    On the device the largest layer's weights and gradients (4 bytes a parameter) and 18Ψ/N; with optimizer offload 2Ψ/N
    instead of 18Ψ/N, with both offloads neither. Without `zero_init` every process first builds the whole model.

    Source: `estimate_zero3_model_states_mem_needs` in `deepspeed/runtime/zero/stage3.py`, 0.19.8.

    Raises:
        ValueError: parameters offloaded without the optimizer's states; DeepSpeed's estimator has no such case.
    """
    if offload_param and not offload_optimizer:
        raise ValueError("offload_param without offload_optimizer: DeepSpeed's estimator has no such case")
    gpus = gpus_per_node * nodes
    if offload_optimizer:
        share = (18 if offload_param else 16) * (1 / nodes)  # of a node; the same order of operations as DeepSpeed's
        per_param = share if zero_init else max(4 * gpus_per_node, share)
        return StateMemory(
            host_bytes=int(params * per_param * _BUFFER_FACTOR),
            device_bytes=4 * largest_layer + (0 if offload_param else int(2 * params / gpus)),
        )
    return StateMemory(
        host_bytes=initial_host_bytes(largest_layer if zero_init else params, gpus_per_node),
        device_bytes=4 * largest_layer + int(18 * params / gpus),
    )


def bytes_per_param(dtype: str) -> ParamBytes:
    """What a parameter needs with Adam; in mixed precision, an fp32 weight is among its optimizer states."""
    return ParamBytes(4, 4, 8) if dtype == "fp32" else ParamBytes(2, 2, 12)


def _check(stage: int, offload: Offload) -> None:
    """Refuses what DeepSpeed does not support: see `offload_optimizer` and `offload_param` in its documentation."""
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"ZeRO stage {stage}: expected 0, 1, 2 or 3")
    if offload.optimizer != "none" and stage == 0:
        raise ValueError("offload_optimizer: expected ZeRO stage 1, 2 or 3, got 0")
    if offload.optimizer == "nvme" and stage != 3:
        raise ValueError(f"offload_optimizer to nvme: expected ZeRO stage 3, got {stage}")
    if offload.param != "none" and stage != 3:
        raise ValueError(f"offload_param: expected ZeRO stage 3, got {stage}")
