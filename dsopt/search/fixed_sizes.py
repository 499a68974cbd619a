"""Sizes that the script sets itself: once dsopt refused a run for one, it tries no candidate with another size."""

from dataclasses import dataclass
from typing import Final

from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History, Observation
from dsopt.study.own_sizes import own_size
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate
from dsopt.study.spec import StudySpec

_BATCH: Final = "fixed_batch"
_ACCUMULATION: Final = "fixed_accumulation"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSizes:
    """The micro-batch size and the accumulation that the script keeps; None if it uses the configured one."""

    micro_batch: int | None
    gas: int | None

    def allow(self, candidate: Candidate) -> bool:
        """Whether a candidate has these sizes."""
        return self.micro_batch in (None, candidate.micro_batch) and self.gas in (None, candidate.gas)


def fixed_sizes(spec: StudySpec, history: History, facts: ModelFacts) -> FixedSizes:
    """What the script keeps, as far as refused runs show: the sizes of the user's own run."""
    reasons = {o.reason for o in refusals(history)}
    baseline = history.find(BASELINE)
    is_measured = baseline is not None and baseline.facts is not None
    micro_batch = facts.micro_batch if is_measured else own_size(spec, MICRO_BATCH)
    gas = facts.gas if is_measured else own_size(spec, ACCUMULATION)
    return FixedSizes(
        micro_batch=micro_batch if _BATCH in reasons else None, gas=gas if _ACCUMULATION in reasons else None
    )


def refusals(history: History) -> list[Observation]:
    """The runs that dsopt refused because the script has its own size."""
    return [o for o in history.everything if o.reason in (_BATCH, _ACCUMULATION)]
