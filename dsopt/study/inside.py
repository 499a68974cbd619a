"""Whether what was read from a database lies in a study's space: nothing else is ever launched or reported."""

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from dsopt.study.own_sizes import keeps_accumulation, smallest_micro_batch
from dsopt.study.space import ACCUMULATION, LARGEST, MICRO_BATCH, ZERO, Candidate, Knob, Setting, StageSpace
from dsopt.study.spec import StudySpec

_KNOBS: Final = (bool, int, float, str, type(None))
_HIDDEN_MOST: Final = 2**20  # far more than any model has
_THRESHOLD: Final = f"{ZERO}stage3_param_persistence_threshold"
_PREFETCH: Final = f"{ZERO}stage3_prefetch_bucket_size"
_BUCKET: Final = f"{ZERO}reduce_bucket_size"
# what `dsopt.probe.aio` gives, by either of DeepSpeed's names for the threads
_AIO_NUMBERS: Final = ("block_size", "queue_depth", "intra_op_parallelism", "thread_count")
_AIO_SWITCHES: Final = ("single_submit", "overlap_events")
_AIO_MOST: Final = 2**30


def candidate_inside(spec: StudySpec, stage: int, params: Mapping[str, Any]) -> Candidate | None:
    """The candidate that a trial's parameters describe, if the study's space has it.

    Args:
        spec: the study.
        stage: the ZeRO stage of the part that the trial belongs to.
        params: the trial's parameters.
    """
    if stage not in spec.stages or not all(_is_size(params.get(key)) for key in (MICRO_BATCH, ACCUMULATION)):
        return None
    for space in _spaces(spec, stage, params):
        knobs = _setting(space, params)
        if knobs is not None:
            return Candidate(stage=stage, micro_batch=params[MICRO_BATCH], gas=params[ACCUMULATION], knobs=knobs)
    return None


def may_be_tried(spec: StudySpec, candidate: Candidate, own: tuple[int, int]) -> bool:
    """Whether the user's lists and limits allow a candidate's batch sizes, as far as the spec alone tells.

    What runs show may allow fewer (`dsopt.search.limits.is_tried`).

    Args:
        spec: the study.
        candidate: a point of its space.
        own: micro-batch size and accumulation of the user's own run: a script may keep them whatever it is told.
    """
    tuning, size, gas = spec.autotuning, candidate.micro_batch, candidate.gas
    most, total = tuning.max_train_micro_batch_size_per_gpu, tuning.max_train_batch_size
    if spec.micro_batch_list is not None:
        is_size, is_smallest = size in spec.micro_batch_list, False
    else:
        is_size = size >= tuning.min_train_micro_batch_size_per_gpu and (most is None or size <= most)
        is_smallest = size <= smallest_micro_batch(spec)  # tried whatever it makes of the budget
    listed = None if spec.global_batch == "keep" else spec.accumulation_list
    fills = total is not None and not keeps_accumulation(spec)  # the one that fills the budget
    is_gas = listed is None or gas in listed or (fills and len(listed) == 1)
    is_in_budget = total is None or size * gas <= total or is_smallest or (size, gas) == (1, 1)
    return (is_size or size == own[0]) and (is_gas or gas == own[1]) and is_in_budget


def aio_inside(value: object) -> Mapping[str, Any] | None:
    """The `aio` section that a study keeps, if it has the form of a measured one; None otherwise."""
    if not isinstance(value, Mapping) or not value:
        return None
    for key, given in value.items():
        is_switch = key in _AIO_SWITCHES and isinstance(given, bool)
        is_number = key in _AIO_NUMBERS and type(given) is int and 0 < given <= _AIO_MOST
        if not is_switch and not is_number:
            return None
    return value


def is_hidden_size(value: object) -> bool:
    """Whether a number can be a model's hidden size."""
    return type(value) is int and 0 < value <= _HIDDEN_MOST


def _is_size(value: object) -> bool:
    return type(value) is int and 1 <= value <= LARGEST


def _keys(space: StageSpace) -> set[str]:
    return {MICRO_BATCH, ACCUMULATION, *space.knobs}


def _setting(space: StageSpace, params: Mapping[str, Any]) -> Setting | None:
    """The values of a space's knobs, as the space has them; None if a value or a key is not in it."""
    if params.keys() != _keys(space):
        return None
    setting: list[tuple[str, Knob]] = []
    for key, values in _values(space).items():
        value = params[key]
        if not isinstance(value, _KNOBS) or (type(value) is bool, value) not in values:
            return None
        setting.append((key, values[type(value) is bool, value]))
    return tuple(setting)


@lru_cache(maxsize=64)
def _values(space: StageSpace) -> Mapping[str, Mapping[tuple[bool, Knob], Knob]]:
    """The values of each knob by how they are written: True is not 1 on a command line, but 5e8 may be 500000000."""
    return {
        key: {(type(value) is bool, value): value for value in reversed(values)} for key, values in space.knobs.items()
    }


def _spaces(spec: StudySpec, stage: int, params: Mapping[str, Any]) -> Iterator[StageSpace]:
    """The spaces that a stage may have: with ZeRO 3, some values follow from the model's hidden size.

    The hidden size is what a run showed. It is told from the parameters themselves, so that nothing else that was
    stored has to be believed.
    """
    plain = spec.space(stage)
    yield plain
    if stage != 3 or spec.autotuning.fast:
        return
    for size in sorted(_hidden_sizes(params)):
        yield spec.space(stage, size)


def _hidden_sizes(params: Mapping[str, Any]) -> set[int]:
    """The hidden sizes for which a parameter may have its value."""
    threshold, prefetch, bucket = (params.get(key) for key in (_THRESHOLD, _PREFETCH, _BUCKET))
    sizes = {1}  # the keys alone, with DeepSpeed's own values
    if type(threshold) is int:
        sizes.add(threshold // 10)
    if type(bucket) is int and bucket > 0:
        sizes.add(math.isqrt(bucket))
    if type(prefetch) is int and 0 < prefetch <= _HIDDEN_MOST**2:
        near = math.isqrt(int(prefetch / 0.9))
        sizes |= {near, near + 1}
    return {size for size in sizes if is_hidden_size(size)}
