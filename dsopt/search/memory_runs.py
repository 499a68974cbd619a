"""What runs have shown of memory."""

from dataclasses import dataclass

from dsopt.search.facts import ModelFacts
from dsopt.search.history import FULL, Observation
from dsopt.search.tally import Tally
from dsopt.study.space import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A run that shows memory: its candidate, and its peak; None if it ran out."""

    candidate: Candidate
    peak_bytes: int | None


class Telling(Tally):
    """The runs that show memory.

    Attributes:
        measured: those with a peak.
        without_peak: those that ran out of the device's memory and have none.
        out_of_memory: the candidates that ran out of the device's memory or the host's.
    """

    def __init__(self) -> None:
        self.measured: list[Observation] = []
        self.without_peak: list[Observation] = []
        self.out_of_memory: list[Candidate] = []

    def add(self, run: Observation) -> None:
        if run.facts is not None:
            self.measured.append(run)
        elif run.reason == "oom" and run.candidate:
            self.without_peak.append(run)
        if run.reason in FULL and run.candidate:
            self.out_of_memory.append(run.candidate)


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
