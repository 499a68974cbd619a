"""What runs have shown of memory."""

from dataclasses import dataclass

from dsopt.search.facts import ModelFacts
from dsopt.search.history import History, Observation
from dsopt.study.space import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A run that shows memory: its candidate, and its peak; None if it ran out."""

    candidate: Candidate
    peak_bytes: int | None


def telling(history: History) -> tuple[list[Observation], list[Observation]]:
    """The runs that show memory, in the order in which to learn from them: with a peak, then those that ran out."""
    measured = [o for o in history.everything if o.facts is not None]
    return measured, [o for o in history.everything if o.reason == "oom" and o.facts is None and o.candidate]


def point_of(run: Observation) -> Point:
    """What such a run shows."""
    if run.facts is None:
        assert run.candidate is not None
        return Point(candidate=run.candidate, peak_bytes=None)
    # on a device cached blocks are given back before memory runs out; elsewhere the limit is on the reserved
    counted = run.facts.outside_bytes and run.facts.peak_allocated_bytes
    return Point(candidate=_ran(run, run.facts), peak_bytes=counted or run.facts.peak_memory_bytes)


def _ran(observation: Observation, facts: ModelFacts) -> Candidate:
    """What ran, by the run's own account; reference runs have the user's own knobs."""
    knobs = observation.candidate.knobs if observation.candidate else ()
    return facts.candidate(knobs)
