"""A checkpoint that the training goes on from, and that DeepSpeed does not load with the best configuration."""

from typing import Final

from dsopt.search.history import History
from dsopt.study.ds_config import get_path
from dsopt.study.isolation import RESUMING
from dsopt.study.script_flags import count_of_values, is_on
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec

_NOTHING: Final = ("none", "null")
_LOAD_EACH_OTHERS: Final = frozenset((1, 2))  # ZeRO stages: one class of DeepSpeed's saves for both


def resumed(spec: StudySpec, history: History, best: Candidate | None) -> list[str]:
    """A warning if the best has a ZeRO stage with which the user's checkpoint cannot be loaded.

    Experiments load none, so none of them fails for that.
    """
    own = history.own_stage
    if best is None or own is None or best.stage == own or {best.stage, own} <= _LOAD_EACH_OTHERS:
        return []
    place = next((o.resumes_from for o in history.everything if o.resumes_from), None) or _typed(spec)
    if place is None or get_path(spec.ds_config, "checkpoint.load_universal"):
        return []
    return [
        f"WARNING: your training goes on from {place}. If that was saved with ZeRO {own}, as your configuration has "
        f"it, DeepSpeed does not load it with ZeRO {best.stage}, and the training ends with an error. Begin it anew, "
        f'or keep the stage: put "zero_optimization": {{"stage": {own}}} into the configuration, and tune in a new '
        "study (another --name)."
    ]


def _typed(spec: StudySpec) -> str | None:
    """What the command says to go on from, by its flag: runs do not get it, and its value may be a URL with a key."""
    for flag in RESUMING:
        typed, words = spec.launch.script_switch(flag), spec.launch.script_args
        is_empty = typed == "" and (count_of_values(words, flag) > 0 or f"{flag}=" in words)
        if is_on(typed) and str(typed).lower() not in _NOTHING and not is_empty:
            return f"what {flag} names"
    return None
