"""What a DeepSpeed configuration says about time and memory, with DeepSpeed's defaults filled in."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dsopt.simulated.model import ELEMENT_BYTES, Model

_BUCKET: Final = 500_000_000
_PREFETCH: Final = 50_000_000
_LIVE: Final = 1_000_000_000
_PERSISTENCE: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Concrete settings of one run. Sizes of buckets are in elements, as DeepSpeed has them."""

    ranks: int
    nodes: int
    stage: int
    micro_batch: int
    gas: int
    dtype: str
    is_overlapping: bool
    is_reduce_scatter: bool
    is_contiguous: bool
    is_allgather: bool
    reduce_bucket: int
    allgather_bucket: int
    prefetch_bucket: int
    max_live: int
    max_reuse: int
    persistence: int
    optimizer_device: str
    optimizer_pinned: bool
    optimizer_ratio: float
    param_device: str
    param_pinned: bool
    cpu_checkpointing: bool

    @property
    def element_bytes(self) -> int:
        """Bytes of one parameter or activation in the working precision."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def ranks_per_node(self) -> int:
        return -(-self.ranks // self.nodes)


def read_settings(ds_config: Mapping[str, Any], model: Model, *, ranks: int, nodes: int) -> Settings:
    """The settings of a configuration with concrete values; a setting without effect at its stage has its default.

    `"auto"` is what the Hugging Face Trainer fills in.

    Raises:
        ValueError: neither a micro-batch size nor a train batch size that gives one.
    """
    zero = ds_config.get("zero_optimization") or {}
    stage = int(zero.get("stage", 0))
    square = model.hidden * model.hidden

    def number(key: str, default: int, auto: int) -> int:
        value = zero.get(key, default)
        return auto if value == "auto" else int(float(value))

    def switch(key: str, default: bool) -> bool:
        value = zero.get(key)
        return default if value in (None, "auto") else bool(value)

    optimizer = _section(zero, "offload_optimizer", "cpu_offload")
    param = _section(zero, "offload_param", "cpu_offload_params")
    gas = _accumulation(ds_config, ranks)
    settings = Settings(
        ranks=ranks,
        nodes=nodes,
        stage=stage,
        micro_batch=_micro_batch(ds_config, gas, ranks),
        gas=gas,
        dtype=_dtype(ds_config, model.dtype),
        is_overlapping=switch("overlap_comm", stage == 3),
        is_reduce_scatter=switch("reduce_scatter", True),
        is_contiguous=switch("contiguous_gradients", True),
        is_allgather=switch("allgather_partitions", True),
        reduce_bucket=number("reduce_bucket_size", _BUCKET, square),
        allgather_bucket=number("allgather_bucket_size", _BUCKET, _BUCKET),
        prefetch_bucket=number("stage3_prefetch_bucket_size", _PREFETCH, square * 9 // 10),
        max_live=number("stage3_max_live_parameters", _LIVE, _LIVE),
        max_reuse=number("stage3_max_reuse_distance", _LIVE, _LIVE),
        persistence=number("stage3_param_persistence_threshold", _PERSISTENCE, 10 * model.hidden),
        optimizer_device=str(optimizer.get("device") or "none"),
        optimizer_pinned=bool(optimizer.get("pin_memory", False)),
        optimizer_ratio=float(optimizer.get("ratio", 1.0)),
        param_device=str(param.get("device") or "none"),
        param_pinned=bool(param.get("pin_memory", False)),
        cpu_checkpointing=bool((ds_config.get("activation_checkpointing") or {}).get("cpu_checkpointing", False)),
    )
    return _without_idle(settings, model)


def _without_idle(settings: Settings, model: Model) -> Settings:
    """The same run with the default for every setting that has no effect, so that equal runs are equal."""
    stage = settings.stage
    if not model.is_checkpointing:
        settings = replace(settings, cpu_checkpointing=False)
    if stage < 3:
        settings = replace(
            settings,
            prefetch_bucket=_PREFETCH,
            max_live=_LIVE,
            max_reuse=_LIVE,
            persistence=_PERSISTENCE,
            param_device="none",
            optimizer_ratio=1.0,
        )
    else:
        # ZeRO 3 gathers parameters as they are needed, never in buckets after the step
        settings = replace(settings, is_reduce_scatter=True, is_allgather=True, allgather_bucket=_BUCKET)
    if stage == 0:
        settings = replace(
            settings,
            is_overlapping=False,
            is_reduce_scatter=True,
            is_contiguous=True,
            is_allgather=True,
            reduce_bucket=_BUCKET,
            allgather_bucket=_BUCKET,
            optimizer_device="none",
        )
    if settings.optimizer_device == "none":
        settings = replace(settings, optimizer_pinned=False, optimizer_ratio=1.0)
    if settings.param_device == "none":
        settings = replace(settings, param_pinned=False)
    return settings


def _section(zero: Mapping[str, Any], key: str, legacy: str) -> Mapping[str, Any]:
    section = zero.get(key)
    if isinstance(section, Mapping):
        return section
    return {"device": "cpu"} if zero.get(legacy) is True else {}


def _dtype(ds_config: Mapping[str, Any], default: str) -> str:
    sections = {"fp16": ds_config.get("fp16"), "bf16": ds_config.get("bf16", ds_config.get("bfloat16"))}
    for name, section in sections.items():
        if isinstance(section, Mapping) and str(section.get("enabled")).lower() == "true":
            return name
    return "fp32" if any(isinstance(section, Mapping) for section in sections.values()) else default


def _accumulation(ds_config: Mapping[str, Any], ranks: int) -> int:
    """As DeepSpeed takes it: what is given, or what the train batch size needs beside a micro-batch size, or 1."""
    micro_batch, whole = (_count(ds_config, key) for key in ("train_micro_batch_size_per_gpu", "train_batch_size"))
    implied = whole // (micro_batch * ranks) if micro_batch and whole else 1
    return _count(ds_config, "gradient_accumulation_steps") or max(1, implied)


def _micro_batch(ds_config: Mapping[str, Any], gas: int, ranks: int) -> int:
    micro_batch = _count(ds_config, "train_micro_batch_size_per_gpu")
    if micro_batch is not None:
        return micro_batch
    whole = _count(ds_config, "train_batch_size")
    if whole is None or whole % (gas * ranks):
        raise ValueError(
            "neither the configuration nor a flag of the script gives a micro-batch size; "
            "set train_micro_batch_size_per_gpu"
        )
    return whole // (gas * ranks)


def _count(ds_config: Mapping[str, Any], key: str) -> int | None:
    value = ds_config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None
