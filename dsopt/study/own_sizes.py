"""The batch sizes of the user's own run, from the configuration and the command."""

from dsopt.study.space import ACCUMULATION, MICRO_BATCH
from dsopt.study.spec import StudySpec


def own_size(spec: StudySpec, key: str) -> int:
    """The micro-batch size or accumulation of the user's own run, by its key in DeepSpeed's configuration.

    It comes from the configuration (the first of a list), else from the mapped flag of the script, else it is 1.
    This is the rule of DeepSpeed's autotuning tutorial.
    """
    given = spec.ds_config.get(key)
    own = given[0] if isinstance(given, list) else given
    return own if isinstance(own, int) else _typed_size(spec, key) or 1


def is_open(spec: StudySpec, key: str) -> bool:
    """Whether only the script knows that size: the configuration says "auto", and the command does not say it."""
    return spec.ds_config.get(key) == "auto" and _typed_size(spec, key) is None


def smallest_micro_batch(spec: StudySpec) -> int:
    """The smallest micro-batch size to try, if it runs: the user's own, as in the tutorial.

    `min_train_micro_batch_size_per_gpu` may raise it; dsopt tries nothing below that.
    """
    return max(own_size(spec, MICRO_BATCH), spec.autotuning.min_train_micro_batch_size_per_gpu)


def keeps_accumulation(spec: StudySpec) -> bool:
    """Whether the user fixes the accumulation, by a number in the configuration or else by the mapped flag.

    With `global_batch: keep` it follows the micro-batch size instead.
    """
    given = spec.ds_config.get(ACCUMULATION)
    is_given = isinstance(given, int) or (given is None and _typed_size(spec, ACCUMULATION) is not None)
    return is_given and spec.global_batch != "keep"


def _typed_size(spec: StudySpec, key: str) -> int | None:
    """The value in the command of the flag that is mapped to a key; None if it is not a size."""
    flag = spec.autotuning.arg_mappings.get(key)
    typed = spec.launch.script_value(flag) if flag else None
    return int(typed) if typed is not None and typed.isdecimal() and int(typed) >= 1 else None
