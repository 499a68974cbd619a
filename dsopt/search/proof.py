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
    """Another run of the user's own configuration, or else of the best, one at a time. None: there is none to be had.

    Where the user asks for rounds, it is the next one of theirs; a comparison has no other run than its own.

    Args:
        nodes: where it is to run, if it can.
    """
    proofs = [o for o in history.reference if o.why == _WHY]
    if spec.compare or len(proofs) >= _MOST or any(o.state == "running" for o in proofs):
        return None
    going = {o.name for o in history.reference if o.state == "running"}
    found = next((o for o in _known(spec, history) if o.name not in going), None)
    if found is None:
        return None
    step = replace(run_again(history, found.name, found.candidate, _WHY), on=nodes)
    return step if spec.confirmation is None or step.round <= spec.confirmation.rounds else None


def _known(spec: StudySpec, history: History) -> Sequence[Observation]:
    """What has run here, the user's own first."""
    own = history.find(BASELINE)
    known = [own] if own is not None and own.state == "measured" else []
    if spec.confirmation is None:
        known += sorted((o for o in history.measured if o.is_spent), key=history.score, reverse=True)[:1]
    return known
