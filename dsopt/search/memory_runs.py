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


def points(history: History) -> list[Point]:
    """Every run that shows memory, in the order in which to learn from them: peaks first, then bounds."""
    measured, bounds = [], []
    for o in history.everything:
        if o.facts is not None:
            # on a device cached blocks are given back before memory runs out; elsewhere the limit is on the reserved
            counted = o.facts.outside_bytes and o.facts.peak_allocated_bytes
            peak = counted or o.facts.peak_memory_bytes
            measured.append(Point(candidate=_ran(o, o.facts), peak_bytes=peak))
        elif o.reason == "oom" and o.candidate is not None:
            bounds.append(Point(candidate=o.candidate, peak_bytes=None))
    return measured + bounds


def _ran(observation: Observation, facts: ModelFacts) -> Candidate:
    """What ran, by the run's own account; reference runs have the user's own knobs."""
    knobs = observation.candidate.knobs if observation.candidate else ()
    return facts.candidate(knobs)
