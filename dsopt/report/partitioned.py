"""What a whole training saves where the best configuration has ZeRO 3, and the user's own has not."""

from dsopt.search.history import History
from dsopt.study.candidate_run import own_stage
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec


def partitioned(spec: StudySpec, history: History, best: Candidate | None) -> list[str]:
    """A warning if the best has each rank hold a part of the weights only: a script may save that part.

    Experiments save nothing, so none of them shows it.
    """
    own = own_stage(spec) if history.own_stage is None else history.own_stage
    if best is None or best.stage < 3 or own == 3:
        return []
    return [
        "WARNING: with ZeRO 3 each rank holds a part of the weights only, other than with your configuration, and "
        "torch.save(model.state_dict()) saves only that part. Before a whole training, look that your script saves "
        "with save_checkpoint(), save_16bit_model() or the Trainer, and that what it saved can be loaded."
    ]
