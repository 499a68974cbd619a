"""The settings of `zero_optimization` that a candidate ends up with: its own, else the user's, else DeepSpeed's."""

from collections.abc import Mapping
from typing import Any, Final

from dsopt.study.ds_config import baseline_config, get_path
from dsopt.study.space import ZERO, Knob, Setting, trainer_defaults
from dsopt.study.spec import StudySpec

# defaults of `deepspeed/runtime/zero/config.py`, 0.19; `overlap_comm` is on at ZeRO 3 alone
_DEFAULTS: Final[Mapping[str, Knob]] = {
    "overlap_comm": False,
    "reduce_scatter": True,
    "contiguous_gradients": True,
    "allgather_partitions": True,
    "reduce_bucket_size": 500_000_000,
    "allgather_bucket_size": 500_000_000,
    "stage3_prefetch_bucket_size": 50_000_000,
    "stage3_max_live_parameters": 1_000_000_000,
    "stage3_param_persistence_threshold": 100_000,
}


class ZeroSettings:
    """Answers for any candidate of a study what one of its settings is.

    Args:
        spec: the study.
        hidden_size: the model's, where it is known.
    """

    def __init__(self, spec: StudySpec, hidden_size: int | None) -> None:
        self._own: Mapping[str, Any] = baseline_config(spec.ds_config)
        self._auto = trainer_defaults(hidden_size) if hidden_size else {}

    def __call__(self, stage: int, setting: Setting, key: str) -> Any:  # noqa: ANN401 - any JSON value
        """The value of a path in DeepSpeed's configuration, such as `zero_optimization.overlap_comm`, or of a flag.

        None where nobody gives one and DeepSpeed's default is not known here. "auto" is what the Trainer makes of it,
        and counts as not given where that is not known.
        """
        chosen = dict(setting)
        value = chosen[key] if key in chosen else None if key.startswith("-") else get_path(self._own, key)
        if value not in (None, "auto"):
            return value
        name = key.removeprefix(ZERO)
        if value == "auto" and name in self._auto:
            return self._auto[name]
        return stage == 3 if name == "overlap_comm" else _DEFAULTS.get(name)
