"""A run that shows whether the machine is well, where nothing else would show whose fault it was that runs failed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dsopt.search.beside import run_again
from dsopt.search.history import BASELINE, History
from dsopt.search.steps import RunReference
from dsopt.study.spec import StudySpec

_WHY: Final = "to see whether the machine is well: others met a fault of it"
_MOST: Final = 12  # where so many have settled nothing, the user has to


def proof_step(spec: StudySpec, history: History, nodes: Sequence[str]) -> RunReference | None:
    """Another run of the user's own configuration, one at a time. None: there is none to be had.

    It is none of the rounds that a user asks for. A comparison has no other runs than its own.

    Args:
        nodes: where it is to run, if it can.
    """
    own = history.find(BASELINE)
    if spec.compare or own is None or own.state != "measured":
        return None
    again = [o for o in history.reference if o.name == BASELINE and o.round]
    if any(o.state == "running" for o in again) or sum(o.why == _WHY for o in again) >= _MOST:
        return None
    step, rounds = run_again(history, BASELINE, None, _WHY), spec.confirmation.rounds if spec.confirmation else 0
    return replace(step, round=max(step.round, rounds + 1), on=nodes)
