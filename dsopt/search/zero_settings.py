"""The effective settings of `zero_optimization` of a candidate: its own, else the user's, else DeepSpeed's."""

from typing import Any

from dsopt.study.ds_defaults import zero_defaults
from dsopt.study.space import ZERO, Setting, trainer_defaults
from dsopt.study.spec import StudySpec


class ZeroSettings:
    """Looks up any setting of any candidate of a study.

    Args:
        spec: the study.
        hidden_size: the model's, if it is known.
    """

    def __init__(self, spec: StudySpec, hidden_size: int | None) -> None:
        self._own = spec.own_value
        self._auto = trainer_defaults(hidden_size) if hidden_size else {}

    def __call__(self, stage: int, setting: Setting, key: str) -> Any:  # noqa: ANN401 - any JSON value
        """The value of a path in DeepSpeed's configuration, such as `zero_optimization.overlap_comm`, or of a flag.

        None if nobody gives one and DeepSpeed's default is not known here. "auto" is what the Trainer fills in, and
        counts as not given if that is not known.
        """
        chosen = dict(setting)
        value = chosen[key] if key in chosen else self._own(key)
        if value not in (None, "auto"):
            return value
        name = key.removeprefix(ZERO)
        if value == "auto" and name in self._auto:
            return self._auto[name]
        return zero_defaults(stage).get(name)
