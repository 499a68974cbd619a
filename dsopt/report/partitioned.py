"""What a whole training saves where the best configuration has ZeRO 3, and the user's own has not."""

from collections.abc import Mapping
from typing import Any, Final

from dsopt.search.history import History
from dsopt.study.ds_config import get_path
from dsopt.study.space import ZERO, Candidate
from dsopt.study.spec import StudySpec

SAVES_WHOLE: Final = "stage3_gather_16bit_weights_on_model_save"
_LIKE_IT: Final = (SAVES_WHOLE, "gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save")


def partitioned(spec: StudySpec, history: History, best: Candidate | None) -> list[str]:
    """A warning if the best has each rank hold a part of the weights only: a script may save that part.

    Experiments save nothing, so none of them shows it.
    """
    if not _is_new(spec, history, best):
        return []
    return [
        "WARNING: with ZeRO 3 each rank holds a part of the weights only, other than with your configuration, and "
        "torch.save(model.state_dict()) saves only that part. Before a whole training, look that your script saves "
        "with save_checkpoint(), save_16bit_model() or the Trainer, and that what it saved can be loaded."
    ]


def saving_whole(
    spec: StudySpec, history: History, best: Candidate | None, config: Mapping[str, Any]
) -> dict[str, Any]:
    """The best configuration for a training: it saves whole weights, if the user's own did so.

    DeepSpeed's `save_16bit_model` saves nothing else, nor does the Trainer. It changes nothing but what is saved.
    """
    zero = config.get("zero_optimization", {})
    if not _is_new(spec, history, best) or any(key in zero for key in _LIKE_IT):
        return dict(config)
    return {**config, "zero_optimization": {**zero, SAVES_WHOLE: True}}


def _is_new(spec: StudySpec, history: History, best: Candidate | None) -> bool:
    """Whether the best has ZeRO 3, and the user's own has not, as its run showed, else as it says."""
    own = history.own_stage
    if own is None:
        said = get_path(spec.own_config, f"{ZERO}stage")
        own = said if isinstance(said, int) else 0
    return best is not None and best.stage == 3 and own < 3
