"""A run that shows whether the machine is well, where nothing else would show whose fault it was that runs failed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dsopt.search.beside import run_again
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.steps import RunReference
from dsopt.study.spec import StudySpec

_WHY: Final = "to see whether the machine is well: others met a fault of it"
_MOST: Final = 12  # where so many have settled nothing, the user has to


def proof_step(spec: StudySpec, history: History, nodes: Sequence[str]) -> RunReference | None:
    """Another run of the user's own configuration, or of the best where that does not run, one at a time.

    It is none of the rounds that a user asks for. None: nothing has run, or it is a comparison, which has its own.

    Args:
        nodes: where it is to run, if it can.
    """
    own = history.find(BASELINE)
    known = own if own is not None and own.state == "measured" else _best(history)
    if spec.compare or known is None:
        return None
    again = [o for o in history.reference if o.name == known.name and o.round]
    if any(o.state == "running" for o in again) or sum(o.why == _WHY for o in again) >= _MOST:
        return None
    step = run_again(history, known.name, known.candidate, _WHY)
    rounds = spec.confirmation.rounds if spec.confirmation is not None else 0
    return replace(step, round=max(step.round, rounds + 1), on=nodes)


def _best(history: History) -> Observation | None:
    """The best that ran in this study."""
    return max((o for o in history.measured if o.is_spent), key=history.score, default=None)
