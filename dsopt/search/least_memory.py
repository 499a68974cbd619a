"""The least-memory profile: the most frugal value that a study allows of every dimension, at micro-batch 1."""

import re
from collections.abc import Collection, Sequence
from typing import Final, Literal

from dsopt.study.fixed_offload import missing_offload
from dsopt.study.own_sizes import own_size
from dsopt.study.space import ACCUMULATION, Candidate, Knob
from dsopt.study.spec import StudySpec

_Frugal = Literal["on", "off", "least", "most", "offloaded"]

_CHECKPOINTING: Final = r"--.*(checkpointing|recompute).*"
_HALF: Final = r"--(bf16|fp16)|(bf16|fp16)\.enabled"
_LENGTH: Final = r"--.*(seq|length|block_size).*"
# Which value of a dimension needs the least device memory, then the least host memory. Source: "How to choose which
# ZeRO stage and offloads to use for best performance" in Hugging Face's document on DeepSpeed; the sizes of buffers
# are from its section on OOMs.
_FRUGAL: Final[Sequence[tuple[str, _Frugal]]] = (
    (_CHECKPOINTING, "on"),
    (r"activation_checkpointing\.(partition_activations|cpu_checkpointing)", "on"),
    (r".*\.offload_(optimizer|param)\.device", "offloaded"),
    (r".*\.offload_(optimizer|param)\.pin_memory", "off"),
    (r".*\.offload_optimizer\.ratio", "most"),
    (_HALF, "on"),
    (r"num_gpus|num_nodes", "most"),
    (_LENGTH, "least"),
    (r"zero_optimization\.overlap_comm", "off"),
    (
        r"zero_optimization\..*(bucket_size|live_parameters|reuse_distance|persistence_threshold|sub_group_size)",
        "least",
    ),
)
_OFFLOADED: Final = ("nvme", "cpu")
_ON: Final = ("", "true", "1", "yes", "on", "full")
_OFF: Final = ("none", "false", "0", "no", "off")


def profile_candidate(spec: StudySpec) -> Candidate:
    """The configuration that needs the least memory of all that a study allows.

    Its micro-batch of 1 may be below the smallest that the search tries: it is not a candidate of the search.
    """
    allowed = [stage for stage in spec.stages if missing_offload(spec, stage) is None]
    stage = max(allowed or spec.stages)
    dimensions = spec.space(stage).knobs
    knobs = tuple((key, _most_frugal(spec, key, values, dimensions)) for key, values in dimensions.items())
    return Candidate(stage=stage, micro_batch=1, gas=own_size(spec, ACCUMULATION), knobs=knobs)


def saves_activations(key: str) -> bool:
    """Whether a flag of the script recomputes activations."""
    return re.fullmatch(_CHECKPOINTING, key) is not None


def saves_weights(key: str) -> bool:
    """Whether a dimension switches half precision."""
    return re.fullmatch(_HALF, key) is not None


def shortens(key: str) -> bool:
    """Whether a flag of the script sets the sequence length."""
    return re.fullmatch(_LENGTH, key) is not None


def is_on(value: Knob) -> bool:
    """Whether a value switches something on; a flag without a value does."""
    return str(value).lower() in _ON


def _most_frugal(spec: StudySpec, key: str, values: Sequence[Knob], dimensions: Collection[str]) -> Knob:
    """The value of a dimension that needs the least memory; the user's own if that is not known."""
    found = _ranked(_rule(key, dimensions), values)
    if found:
        return found[0]
    own = spec.own_value(key)
    return own if own in values else values[0]


def _rule(key: str, dimensions: Collection[str]) -> _Frugal | None:
    rule = next((rule for pattern, rule in _FRUGAL if re.fullmatch(pattern, key)), None)
    # only one of the two half precisions can be on
    return "off" if "fp16" in key and key.replace("fp16", "bf16") in dimensions else rule


def _ranked(rule: _Frugal | None, values: Sequence[Knob]) -> list[Knob]:
    """The values that a rule covers, the most frugal first."""
    match rule:
        case "on":
            return [value for value in values if is_on(value)]
        case "off":
            return [value for value in values if str(value).lower() in _OFF]
        case "offloaded":
            return [device for device in _OFFLOADED if device in values]
        case "least" | "most":
            numbers = [value for value in values if _number(value) is not None]
            return sorted(numbers, key=lambda value: _number(value) or 0.0, reverse=rule == "most")
        case None:
            return []


def _number(value: Knob) -> float | None:
    try:
        return None if isinstance(value, bool) or value is None else float(value)
    except ValueError:
        return None
