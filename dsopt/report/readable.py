"""Candidates as people read them: `ZeRO 2 · 24 × 4 · bucket 50M`. Folders, rows and files keep the canonical names."""

from typing import Final

from dsopt.search.history import BASELINE
from dsopt.study.space import ZERO, Candidate, Knob, is_script_flag

_SHORT: Final = {
    "reduce_bucket_size": "bucket",
    "stage3_prefetch_bucket_size": "prefetch bucket",
    "stage3_param_persistence_threshold": "persistence threshold",
    "stage3_max_live_parameters": "live parameters",
    "stage3_max_reuse_distance": "reuse distance",
    "overlap_comm": "overlap",
    "offload_optimizer.device": "optimizer offload",
    "offload_param.device": "parameter offload",
    "num_gpus": "GPUs",
    "num_nodes": "nodes",
}
_REASONS: Final = {
    "oom": "out of memory",
    "host_oom": "out of host memory",
    "predicted_oom": "would not fit",
    "invalid_config": "invalid configuration",
}
_LARGE: Final = ((10**9, "B"), (10**6, "M"), (10**3, "K"))
_EXACT: Final = 4  # digits with which a number may be shortened


def readable(candidate: Candidate) -> str:
    """Stage, micro-batch size × accumulation, and every knob with its value; flags that are not given stay away."""
    knobs = [knob_text(key, value) for key, value in candidate.knobs if not (is_script_flag(key) and value is None)]
    return " · ".join([f"ZeRO {candidate.stage}", f"{candidate.micro_batch} × {candidate.gas}", *knobs])


def outcome_text(state: str, reason: str | None) -> str:
    """Why something was not measured, or its state, in words; attributes and files keep the names."""
    return _REASONS.get(reason, reason.replace("_", " ")) if reason else state


def readable_name(name: str, candidate: Candidate | None, round_: int = 0) -> str:
    """What ran, for people: of a reference run too, whose candidate may be the user's own configuration."""
    if name == BASELINE:
        shown = "your configuration"
    elif candidate is None:
        shown = name
    else:
        shown = readable(candidate)
    shown = f"{shown} (least memory)" if name == "profile" else shown
    return f"{shown} · round {round_}" if round_ else shown


def knob_text(key: str, value: Knob) -> str:
    """One knob with its value: `bucket 50M`, `overlap off`, `--gradient_checkpointing`."""
    if is_script_flag(key):
        return key if value in ("", True) else f"{key} {value_text(value)}"
    return f"{key_text(key)} {value_text(value)}"


def key_text(key: str) -> str:
    """A key of DeepSpeed's configuration in words."""
    plain = key.removeprefix(ZERO)
    return _SHORT.get(plain, plain.replace("_", " "))


def value_text(value: object) -> str:
    """A value: numbers as `50M` where that is exact, truths as `on` and `off`."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "not given"
    if isinstance(value, int | float) and abs(value) >= 10_000:
        for size, letter in _LARGE:
            short = f"{value / size:.{_EXACT}g}"
            if abs(value) >= size and float(short) * size == value:
                return short + letter
        return f"{value:,}"
    return str(value)
