"""The tuning space: what may be tried at each ZeRO stage, and the candidates it enumerates."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Knob: TypeAlias = bool | int | float | str
STAGES: Final = (0, 1, 2, 3)

_BUCKETS: Final[tuple[Knob, ...]] = (50_000_000, 500_000_000, 1_000_000_000)
_SWITCH: Final[tuple[Knob, ...]] = (True, False)

# DeepSpeed's documented tuning spaces (DEFAULT_TUNING_SPACE_ZERO_0 … 3), used with `fast: false`.
DEFAULT_KNOBS: Final[dict[int, dict[str, tuple[Knob, ...]]]] = {
    0: {},
    1: {"reduce_bucket_size": _BUCKETS, "allgather_bucket_size": _BUCKETS},
    2: {
        "overlap_comm": _SWITCH,
        "reduce_scatter": _SWITCH,
        "reduce_bucket_size": _BUCKETS,
        "allgather_bucket_size": _BUCKETS,
        "contiguous_gradients": _SWITCH,
    },
    3: {
        "overlap_comm": _SWITCH,
        "reduce_scatter": _SWITCH,
        "reduce_bucket_size": _BUCKETS,
        "allgather_partitions": _SWITCH,
        "allgather_bucket_size": _BUCKETS,
        "contiguous_gradients": _SWITCH,
    },
}

MICRO_BATCH: Final = "train_micro_batch_size_per_gpu"
ACCUMULATION: Final = "gradient_accumulation_steps"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Candidate:
    """One point of a stage's tuning space.

    Attributes:
        stage: ZeRO stage, 0 to 3.
        micro_batch: samples per GPU and micro-step.
        gas: micro-steps per optimizer step (gradient accumulation steps).
        knobs: further keys of `zero_optimization` with their values, in the space's order.
    """

    stage: int
    micro_batch: int
    gas: int
    knobs: tuple[tuple[str, Knob], ...] = ()

    @property
    def name(self) -> str:
        """The canonical name of DeepSpeed's tutorial, such as `z1_rbs5e+07_abs1e+09_gas1_tmbspg11`."""
        parts = [_initials(key) + _shown(value) for key, value in self.knobs]
        return "_".join([f"z{self.stage}", *parts, f"gas{self.gas}", f"tmbspg{self.micro_batch}"])

    @property
    def params(self) -> dict[str, Knob]:
        """The candidate as parameters of an Optuna trial; the stage is the study's."""
        return {MICRO_BATCH: self.micro_batch, ACCUMULATION: self.gas, **dict(self.knobs)}

    @classmethod
    def from_params(cls, stage: int, params: Mapping[str, Any]) -> "Candidate":
        """The candidate that `params` of an Optuna trial stand for."""
        knobs = tuple((key, value) for key, value in params.items() if key not in (MICRO_BATCH, ACCUMULATION))
        return cls(stage=stage, micro_batch=params[MICRO_BATCH], gas=params[ACCUMULATION], knobs=knobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpace:
    """What may be tried at one ZeRO stage beside the micro-batch size: knobs with their values, in order."""

    stage: int
    knobs: Mapping[str, tuple[Knob, ...]]

    def settings(self) -> Iterator[tuple[tuple[str, Knob], ...]]:
        """Every combination of knob values, the first being the one that the micro-batch range is found with."""
        for values in itertools.product(*self.knobs.values()):
            yield tuple(zip(self.knobs, values, strict=True))

    def candidates(self, micro_batches: Sequence[int], gas: int) -> list[Candidate]:
        """Every combination of these micro-batch sizes and the stage's knobs."""
        return [
            Candidate(stage=self.stage, micro_batch=micro_batch, gas=gas, knobs=setting)
            for micro_batch in micro_batches
            for setting in self.settings()
        ]


def stage_space(stage: int, *, fast: bool, user_zero: Mapping[str, Any]) -> StageSpace:
    """The space of one stage: the documented knobs with the user's values and lists in their place.

    With `fast`, only keys the user gave a list for are dimensions; the others keep the user's value or DeepSpeed's.
    A single value of the user's is fixed by the base configuration and is no dimension. Offload sections and other
    nested values are never dimensions here.
    """
    documented = {} if fast else DEFAULT_KNOBS[stage]
    fixed = {key for key, value in user_zero.items() if not isinstance(value, list)}
    knobs = {key: values for key, values in documented.items() if key not in fixed}
    knobs |= {key: tuple(value) for key, value in user_zero.items() if isinstance(value, list) and key != "stage"}
    return StageSpace(stage=stage, knobs=knobs)


def _initials(key: str) -> str:
    return "".join(word[:1] for word in key.split("_"))


def _shown(value: Knob) -> str:
    if isinstance(value, bool):
        return "T" if value else "F"
    if isinstance(value, int | float) and value > 9000:
        short = f"{value:g}"
        return short if float(short) == value else str(value)
    return str(value)
