"""DeepSpeed's configuration: checks what the user may have got wrong, and makes the one that a candidate runs with."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsopt.errors import DsoptError
from dsopt.study.mistakes import Mistakes
from dsopt.study.space import ACCUMULATION, LARGEST, MICRO_BATCH, OFFLOADS, STAGES, ZERO, Candidate, listed_values

TRAIN_BATCH = "train_batch_size"


def check_values(config: Mapping[str, Any], where: str, ranks: int | None, mp_size: int, mistakes: Mistakes) -> None:
    """Refuses impossible batch sizes and stages.

    Args:
        config: DeepSpeed's configuration as the user wrote it, including lists of values to try.
        where: the file or place it is in, for messages.
        ranks: how many ranks the command starts, if it says.
        mp_size: ranks that share one model replica.
        mistakes: the mistakes found so far; this adds to them.
    """
    for key in (MICRO_BATCH, ACCUMULATION):
        mistakes.check((f"ds_config.{key}",), _check_counts, config, key, where)
    mistakes.check(("ds_config.zero_optimization",), _check_zero, config, where)
    batch = tuple(f"ds_config.{key}" for key in (MICRO_BATCH, ACCUMULATION, TRAIN_BATCH))
    mistakes.check(batch, _check_batch_product, config, where, ranks, mp_size)


def _check_counts(config: Mapping[str, Any], key: str, where: str) -> None:
    given = config.get(key)
    for value in given if isinstance(given, list) else [] if given in (None, "auto") else [given]:
        if not _is_count(value):
            raise DsoptError(
                f"{where}: {key}: {given!r}: {value!r} is not a valid size. "
                f'Expected a whole number from 1 to {LARGEST}, a list of them, or "auto".'
            )
    if isinstance(given, list):
        check_choices(given, f"{where}: {key}")


def _check_zero(config: Mapping[str, Any], where: str) -> None:
    zero = config.get("zero_optimization", {})
    if zero != "all" and not isinstance(zero, Mapping):
        raise DsoptError(f'{where}: zero_optimization: {zero!r}. Expected an object or "all".')
    zero_stages(config, where)
    for key, value in listed_values(user_zero(config)):
        check_choices(value, f"{where}: zero_optimization.{key}")
    check_offload(config, where)


def check_offload(config: Mapping[str, Any], where: str) -> None:
    """Refuses NVMe offload without a path."""
    for section in OFFLOADS:
        given = get_path(config, f"zero_optimization.{section}")
        if not isinstance(given, Mapping):
            continue
        if "nvme" in _as_list(given.get("device")) and not isinstance(given.get("nvme_path"), str):
            raise DsoptError(
                f"{where}: zero_optimization.{section}: device nvme needs 'nvme_path'. "
                "Expected a folder on the NVMe disk."
            )


def _check_batch_product(config: Mapping[str, Any], where: str, ranks: int | None, mp_size: int) -> None:
    """Refuses a `train_batch_size` that cannot be micro-batch × accumulation × data-parallel ranks."""
    if ranks and ranks % mp_size:
        raise DsoptError(f"{where}: autotuning.mp_size: {mp_size} does not divide the {ranks} ranks of the command.")
    total, micro, gas = config.get(TRAIN_BATCH), config.get(MICRO_BATCH), config.get(ACCUMULATION)
    if isinstance(gas, list):
        gas = None  # the baseline takes the first
    if total in (None, "auto"):
        return
    if not _is_count(total):
        raise DsoptError(f'{where}: {TRAIN_BATCH}: {total!r}. Expected a whole number of at least 1 or "auto".')
    assert isinstance(total, int)
    shared = ". If ranks share a replica (pipeline or tensor parallelism), say how many: autotuning.mp_size"
    fix = f"Correct one of them, or leave out {TRAIN_BATCH}{shared if ranks and mp_size == 1 else ''}."
    sizes = micro if isinstance(micro, list) else [micro]
    for size in sizes:
        factors = {MICRO_BATCH: size, ACCUMULATION: gas, "data-parallel ranks": ranks // mp_size if ranks else None}
        known = {name: int(value) for name, value in factors.items() if value is not None and _is_count(value)}
        product = math.prod(known.values())
        parts = " × ".join(f"{name} {value}" for name, value in known.items())
        if len(known) == len(factors) and total != product:
            raise DsoptError(f"{where}: {TRAIN_BATCH}: {total} contradicts {parts} = {product}. {fix}")
        if total % product:
            raise DsoptError(f"{where}: {TRAIN_BATCH}: {total} is not a multiple of {parts} = {product}. {fix}")


def zero_stages(config: Mapping[str, Any], where: str = "DeepSpeed configuration") -> tuple[int, ...]:
    """The ZeRO stages that the configuration asks to try: absent or "all" means 0 to 3, else exactly what it lists."""
    zero = config.get("zero_optimization", {})
    stage = "all" if zero == "all" else zero.get("stage", "all")
    if stage == "all":
        return STAGES
    stages = stage if isinstance(stage, list) else [stage]
    if not stages or any(type(s) is not int or s not in STAGES for s in stages):
        raise DsoptError(
            f'{where}: zero_optimization.stage: {stage!r}. Expected 0, 1, 2 or 3, a list of these, or "all".'
        )
    return tuple(sorted(set(stages)))


def user_zero(config: Mapping[str, Any]) -> dict[str, Any]:
    """The user's `zero_optimization` settings without the stage."""
    zero = config.get("zero_optimization", {})
    return {} if zero == "all" else {key: value for key, value in zero.items() if key != "stage"}


def check_choices(values: object, where: str) -> None:
    """Refuses a list of values to try that is empty, or that contains anything but single values."""
    if not isinstance(values, list) or not all(v is None or isinstance(v, bool | int | float | str) for v in values):
        raise DsoptError(f"{where}: {values!r}. Expected a list of single values to try.")
    if not values:
        raise DsoptError(f"{where}: the list is empty. Expected the values to try.")
    if has_twins(values):
        raise DsoptError(f"{where}: {values!r}: a value appears twice. Expected different values to try.")


def has_twins(values: Sequence[object]) -> bool:
    """Whether a list contains two values that Optuna and DeepSpeed take for the same: 1 and 1.0, or 1 and true."""
    return any(value == other for index, value in enumerate(values) for other in values[:index])


def baseline_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The user's own configuration as one DeepSpeed can run: no `autotuning`, the first value of each list to try."""
    baseline = _first_values(config)
    stage = get_path(config, "zero_optimization.stage")
    if "zero_optimization" in baseline and not isinstance(stage, int):  # the user leaves the stage to us
        _drop_unfilled(baseline, baseline["zero_optimization"].get("stage", 0))
    _drop_idle_offload(baseline)
    return baseline


def _first_values(config: Mapping[str, Any]) -> dict[str, Any]:
    baseline = {key: value for key, value in config.items() if key != "autotuning"}
    for key in (MICRO_BATCH, ACCUMULATION):
        if isinstance(baseline.get(key), list):
            baseline[key] = baseline[key][0]
    zero = baseline.get("zero_optimization")
    if zero == "all":
        del baseline["zero_optimization"]
    elif zero is not None:
        firsts = {key: dict(value) if isinstance(value, Mapping) else value for key, value in zero.items()}
        for path, values in listed_values(zero):  # a first value of null removes its key
            set_path(firsts, path, values[0])
        stage = firsts.pop("stage", "all")
        own = stage[0] if isinstance(stage, list) else stage
        baseline["zero_optimization"] = {**({} if own == "all" else {"stage": own}), **firsts}
    return copy.deepcopy(baseline)  # without the values to try, which may be many


def candidate_config(config: Mapping[str, Any], candidate: Candidate) -> dict[str, Any]:
    """The configuration that a candidate runs with: the user's, with the candidate's stage, knobs and batch sizes.

    It has no `train_batch_size`: DeepSpeed derives it, and the user's value belongs to other micro-batch sizes.
    """
    result = _first_values({**config, "zero_optimization": user_zero(config)})
    result.pop(TRAIN_BATCH, None)
    result[MICRO_BATCH] = candidate.micro_batch
    result[ACCUMULATION] = candidate.gas
    result["zero_optimization"] = {"stage": candidate.stage, **result["zero_optimization"]}
    _drop_unfilled(result, candidate.stage)
    for path, _ in listed_values(user_zero(config)):
        set_path(result, f"{ZERO}{path}", None)  # the candidate sets it, or it has no effect at this stage
    for path, value in candidate.config_values.items():
        set_path(result, path, value)
    _drop_idle_offload(result)
    return result


def set_path(config: dict[str, Any], path: str, value: object) -> None:
    """Sets a value at a path such as `zero_optimization.overlap_comm`; None removes the key."""
    *sections, key = path.split(".")
    for section in sections:
        config = config.setdefault(section, {})
    if value is None:
        config.pop(key, None)
    else:
        config[key] = value


def get_path(config: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 - any JSON value
    """The value at a path, or None if there is none."""
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def values_of(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every path of a configuration with its value; a section is none."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from values_of(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def offload_devices(config: Mapping[str, Any]) -> tuple[str, str]:
    """Where a configuration keeps optimizer states and parameters: `none`, `cpu` or `nvme` each."""
    zero = config.get("zero_optimization")
    zero = zero if isinstance(zero, Mapping) else {}
    legacy = {"offload_optimizer": zero.get("cpu_offload"), "offload_param": zero.get("cpu_offload_params")}
    found = [
        get_path(zero, f"{section}.device") or ("cpu" if legacy[section] is True else "none") for section in OFFLOADS
    ]
    return str(found[0]), str(found[1])


def _drop_unfilled(config: dict[str, Any], stage: int) -> None:
    """Removes "auto" values of ZeRO 3 at other stages: Hugging Face does not fill them in, DeepSpeed refuses them."""
    if stage < 3:
        zero = config["zero_optimization"]
        kept = {key: value for key, value in zero.items() if not (key.startswith("stage3_") and value == "auto")}
        config["zero_optimization"] = kept


def _drop_idle_offload(config: dict[str, Any]) -> None:
    """Removes offload sections that offload nothing: their other keys would only mislead the reader."""
    zero = config.get("zero_optimization", {})
    for section in OFFLOADS:
        if isinstance(zero.get(section), dict) and zero[section].get("device", "none") in (None, "none"):
            del zero[section]


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST
