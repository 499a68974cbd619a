"""A run that shows whether the machine is well, where nothing else would show whose fault it was that runs failed."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from dsopt.search.beside import run_again
from dsopt.search.history import BASELINE, HOST_FULL, History, Observation
from dsopt.search.sifting import PROFILE
from dsopt.search.steps import RunReference
from dsopt.study.spec import StudySpec

_WHY: Final = "to see whether the machine is well: others failed"
_MOST: Final = 12  # and as many as each needs that failed: where so many have settled nothing, the user has to
_OPEN: Final = 2  # proofs at a time that failed themselves


def proof_step(
    spec: StudySpec, history: History, nodes: Sequence[str], waiting: Collection[str] = ()
) -> RunReference | None:
    """Another run of the user's own configuration, or of the best that has run where that cannot be, one at a time.

    It is none of the rounds that a user asks for. None: nothing has run, or it is a comparison, which has its own.

    Args:
        nodes: where it is to run, if it can.
        waiting: names of what has failed, and waits for a proof.
    """
    running = {o.name for o in history.reference if o.state == "running"}
    known = next((o for o in _known(history) if o.name not in running), None)
    again = [o for o in history.reference if o.round and o.why == _WHY]
    open_ = [o.name for o in again if o.state == "running"]
    most = _MOST + spec.max_attempts * sum(o.state == "failed" or o.reason == HOST_FULL for o in history.observations)
    if spec.compare or known is None or len(again) >= most:
        return None
    if len(open_) >= _OPEN or not {*open_} <= {*waiting}:
        return None
    step = run_again(history, known.name, known.candidate, _WHY)
    rounds = spec.confirmation.rounds if spec.confirmation is not None else 0
    return replace(step, round=max(step.round, rounds + 1), on=nodes)


def _known(history: History) -> list[Observation]:
    """What has run in this study: the user's own, the profile, and the others from the best on."""
    first = [o for name in (BASELINE, PROFILE) if (o := history.find(name)) is not None and o.state == "measured"]
    return first + sorted((o for o in history.measured if o.is_spent), key=history.score, reverse=True)
