"""Finds what fits: the fastest kind of ZeRO whose model states leave room on devices of the usual sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

from dsopt.estimates.zero_memory import NO_OFFLOAD, ModelSize, Offload, device_state_bytes, host_state_bytes

GPUS = (1, 2, 4, 8)
DEVICE_GIB = (24, 40, 80)

STATES_SHARE = 0.8  # see `what_fits`


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroOption:
    """A ZeRO stage with its offloads."""

    stage: int
    offload: Offload = NO_OFFLOAD

    @property
    def label(self) -> str:
        """Its name, such as `ZeRO 2 + optimizer offload`."""
        moved = [n for n, d in (("optimizer", self.offload.optimizer), ("param", self.offload.param)) if d != "none"]
        return f"ZeRO {self.stage}" + (f" + {' and '.join(moved)} offload" if moved else "")


# Fastest first. Source: "How to choose which ZeRO stage and offloads to use for best performance" in Hugging Face's
# document on DeepSpeed; within "stage 3 + offloads", what moves less comes first.
OPTIONS = (
    ZeroOption(stage=0),
    ZeroOption(stage=1),
    ZeroOption(stage=2),
    ZeroOption(stage=2, offload=Offload(optimizer="cpu")),
    ZeroOption(stage=3),
    ZeroOption(stage=3, offload=Offload(optimizer="cpu")),
    ZeroOption(stage=3, offload=Offload(optimizer="cpu", param="cpu")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What to use on some GPUs of one node.

    Attributes:
        gpus, gpu_memory_bytes: how many, and what each has.
        option: the fastest that fits; None when none does.
        device_bytes: model states on each GPU with it; if None, with the option that needs least.
        host_bytes: model states in host memory with it.
    """

    gpus: int
    gpu_memory_bytes: int
    option: ZeroOption | None
    device_bytes: int
    host_bytes: int


def what_fits(model: ModelSize, gpus: Sequence[int] = GPUS, device_gib: Sequence[int] = DEVICE_GIB) -> list[Fit]:
    """For each number of GPUs and each size of them, the first of `OPTIONS` that fits.

    An option fits if its model states, by the ZeRO paper's formulas, stay within 80 % of the device: 454 published
    runs never ran out of memory at or below 80 %. Activations come on top; only a run shows whether they fit, too.
    """
    return [_fit(model, count, gib * 2**30) for count in gpus for gib in device_gib]


def _fit(model: ModelSize, gpus: int, gpu_memory_bytes: int) -> Fit:
    needed = {option: _device_bytes(model, option, gpus) for option in OPTIONS}
    fitting = next((option for option in OPTIONS if needed[option] <= STATES_SHARE * gpu_memory_bytes), None)
    used = fitting or min(OPTIONS, key=lambda option: needed[option])
    host = host_state_bytes(
        used.stage, params=model.num_params, trainable=model.trainable_params, ranks=gpus, ranks_per_node=gpus,
        dtype=model.dtype, offload=used.offload,
    )  # fmt: skip
    return Fit(
        gpus=gpus,
        gpu_memory_bytes=gpu_memory_bytes,
        option=fitting,
        device_bytes=round(needed[used]),
        host_bytes=round(host),
    )


def _device_bytes(model: ModelSize, option: ZeroOption, gpus: int) -> float:
    return device_state_bytes(
        option.stage, params=model.num_params, trainable=model.trainable_params, ranks=gpus, dtype=model.dtype,
        offload=option.offload, largest_layer=model.largest_layer_params,
    )  # fmt: skip
