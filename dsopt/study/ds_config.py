"""DeepSpeed's configuration: what a person may have got wrong in it, and the one that a candidate runs with."""

import copy
import math
from collections.abc import Mapping
from typing import Any

from dsopt.errors import DsoptError
from dsopt.study.documents import nearest
from dsopt.study.ds_keys import SECTIONS
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, STAGES, Candidate

TRAIN_BATCH = "train_batch_size"


def check_keys(config: Mapping[str, Any], where: str) -> list[str]:
    """Refuses keys that are near misses of keys DeepSpeed knows; gives a warning for each other unknown key.

    Raises:
        DsoptError: a near miss, with the key that was probably meant.
    """
    warnings: list[str] = []
    for path, known in SECTIONS.items():
        section: Any = config
        for key in path:
            section = section.get(key, {}) if isinstance(section, Mapping) else {}
        if section == "auto" or section is None or (path == ("zero_optimization",) and section == "all"):
            continue
        if not isinstance(section, Mapping):
            raise DsoptError(f"{where}: {'.'.join(path)}: {section!r}. Expected an object.")
        for key in section:
            if key in known:
                continue
            full = ".".join([*path, str(key)])
            meant = nearest(str(key).lower(), known)
            if meant:
                raise DsoptError(
                    f"{where}: unknown key '{full}'. Did you mean '{'.'.join([*path, meant])}'? "
                    "DeepSpeed would take it in silence and ignore it; correct or remove it."
                )
            warnings.append(f"{where}: DeepSpeed does not know the key '{full}'; it is passed on as it is")
    return warnings


def check_values(config: Mapping[str, Any], where: str, ranks: int | None, mp_size: int) -> None:
    """Refuses batch sizes and stages that cannot be meant.

    Args:
        config: DeepSpeed's configuration as the user wrote it, lists of values to try included.
        where: the file or place it stands in, for messages.
        ranks: how many ranks the command starts, where it says.
        mp_size: ranks that share one model replica.
    """
    micro = config.get(MICRO_BATCH)
    for value in micro if isinstance(micro, list) else [] if micro in (None, "auto") else [micro]:
        if not _is_count(value):
            raise DsoptError(
                f"{where}: {MICRO_BATCH}: {micro!r}: {value!r} is not a micro-batch size. "
                'Expected a whole number of at least 1, a list of them, or "auto".'
            )
    if micro == []:
        raise DsoptError(f"{where}: {MICRO_BATCH}: the list is empty. Expected at least one micro-batch size.")
    gas = config.get(ACCUMULATION)
    if gas not in (None, "auto") and not _is_count(gas):
        raise DsoptError(
            f'{where}: {ACCUMULATION}: {gas!r} is not supported. Expected a whole number of at least 1 or "auto".'
        )
    zero = config.get("zero_optimization", {})
    if zero != "all" and not isinstance(zero, Mapping):
        raise DsoptError(f'{where}: zero_optimization: {zero!r}. Expected an object or "all".')
    zero_stages(config, where)
    for key, value in dict(zero if zero != "all" else {}).items():
        if isinstance(value, list) and key != "stage" and not all(isinstance(v, bool | int | float) for v in value):
            raise DsoptError(
                f"{where}: zero_optimization.{key}: {value!r}. Expected one value, or a list of numbers or booleans."
            )
        if value == []:
            raise DsoptError(f"{where}: zero_optimization.{key}: the list is empty. Expected the values to try.")
    _check_batch_product(config, where, ranks, mp_size)


def _check_batch_product(config: Mapping[str, Any], where: str, ranks: int | None, mp_size: int) -> None:
    """Refuses a `train_batch_size` that cannot be micro-batch × accumulation × data-parallel ranks."""
    if ranks and ranks % mp_size:
        raise DsoptError(f"{where}: autotuning.mp_size: {mp_size} does not divide the {ranks} ranks of the command.")
    total, micro, gas = config.get(TRAIN_BATCH), config.get(MICRO_BATCH), config.get(ACCUMULATION)
    if total in (None, "auto"):
        return
    if not _is_count(total):
        raise DsoptError(f'{where}: {TRAIN_BATCH}: {total!r}. Expected a whole number of at least 1 or "auto".')
    assert isinstance(total, int)
    mend = f"Correct one of them, or leave {TRAIN_BATCH} out."
    sizes = micro if isinstance(micro, list) else [micro]
    for size in sizes:
        factors = {MICRO_BATCH: size, ACCUMULATION: gas, "data-parallel ranks": ranks // mp_size if ranks else None}
        known = {name: int(value) for name, value in factors.items() if value is not None and _is_count(value)}
        product = math.prod(known.values())
        parts = " × ".join(f"{name} {value}" for name, value in known.items())
        if len(known) == len(factors) and total != product:
            raise DsoptError(f"{where}: {TRAIN_BATCH}: {total} contradicts {parts} = {product}. {mend}")
        if total % product:
            raise DsoptError(f"{where}: {TRAIN_BATCH}: {total} is no multiple of {parts} = {product}. {mend}")


def zero_stages(config: Mapping[str, Any], where: str = "DeepSpeed configuration") -> tuple[int, ...]:
    """The ZeRO stages the configuration asks to try: absent or "all" is 0 to 3; a number or a list is exactly that."""
    zero = config.get("zero_optimization", {})
    stage = "all" if zero == "all" else zero.get("stage", "all")
    if stage == "all":
        return STAGES
    stages = stage if isinstance(stage, list) else [stage]
    if not stages or any(isinstance(s, bool) or s not in STAGES for s in stages):
        raise DsoptError(
            f'{where}: zero_optimization.stage: {stage!r}. Expected 0, 1, 2 or 3, a list of these, or "all".'
        )
    return tuple(sorted(set(stages)))


def user_zero(config: Mapping[str, Any]) -> dict[str, Any]:
    """The user's `zero_optimization` settings without the stage."""
    zero = config.get("zero_optimization", {})
    return {} if zero == "all" else {key: value for key, value in zero.items() if key != "stage"}


def baseline_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The user's own configuration as one DeepSpeed can run: no `autotuning`, the first value of each list to try."""
    baseline = {key: copy.deepcopy(value) for key, value in config.items() if key != "autotuning"}
    if isinstance(baseline.get(MICRO_BATCH), list):
        baseline[MICRO_BATCH] = baseline[MICRO_BATCH][0]
    zero = baseline.get("zero_optimization")
    if zero == "all":
        del baseline["zero_optimization"]
    elif zero is not None:
        first = {key: value[0] if isinstance(value, list) else value for key, value in zero.items()}
        baseline["zero_optimization"] = {k: v for k, v in first.items() if not (k == "stage" and v == "all")}
    return baseline


def candidate_config(config: Mapping[str, Any], candidate: Candidate) -> dict[str, Any]:
    """The configuration a candidate runs with: the user's, with stage, knobs and batch sizes in place.

    `train_batch_size` is left out: DeepSpeed derives it, and the user's belongs to other micro-batch sizes.
    """
    result = baseline_config(config)
    result.pop(TRAIN_BATCH, None)
    result[MICRO_BATCH] = candidate.micro_batch
    result[ACCUMULATION] = candidate.gas
    zero = result.get("zero_optimization", {})
    result["zero_optimization"] = {**zero, "stage": candidate.stage, **dict(candidate.knobs)}
    return result


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
