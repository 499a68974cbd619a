"""What runs have shown that no candidate needs to be tried with: sizes, and stages with their settings."""

import math
from dataclasses import dataclass
from typing import Final

from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History, Observation
from dsopt.study.own_sizes import own_size
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate, Setting
from dsopt.study.spec import StudySpec

_BATCH: Final = "fixed_batch"
_ACCUMULATION: Final = "fixed_accumulation"
_TOO_FEW: Final = ("no_metrics", "few_samples")  # steps, samples
_REFUSED: Final = "unsupported"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledOut:
    """What remains.

    Attributes:
        micro_batch, gas: what the script keeps, once dsopt refused a run for its own size; None if it uses the
            configured one.
        most_samples: of one rank in a step. A script that ended too early with more, or had not as many, is asked for
            half: its data are few.
        refused: stages and settings that DeepSpeed refuses whatever the sizes.
    """

    micro_batch: int | None
    gas: int | None
    most_samples: float
    refused: frozenset[tuple[int, Setting]]

    def allow(self, candidate: Candidate) -> bool:
        """Whether a candidate may be tried."""
        return (
            self.micro_batch in (None, candidate.micro_batch)
            and self.gas in (None, candidate.gas)
            and candidate.micro_batch * candidate.gas <= self.most_samples
            and (candidate.stage, candidate.knobs) not in self.refused
        )


def ruled_out(spec: StudySpec, history: History, facts: ModelFacts) -> RuledOut:
    """What the runs of a study have shown; sizes that a script keeps are those of the user's own run."""
    reasons = {o.reason for o in refusals(history)}
    baseline = history.find(BASELINE)
    is_measured = baseline is not None and baseline.facts is not None
    micro_batch = facts.micro_batch if is_measured else own_size(spec, MICRO_BATCH)
    gas = facts.gas if is_measured else own_size(spec, ACCUMULATION)
    known = [(o.candidate, o.reason) for o in history.observations if o.candidate is not None]
    early = (c.micro_batch * c.gas / 2 for c, reason in known if is_measured and reason in _TOO_FEW)
    ran = max((o.facts.micro_batch * o.facts.gas for o in history.everything if o.facts is not None), default=0)
    return RuledOut(
        micro_batch=micro_batch if _BATCH in reasons else None,
        gas=gas if _ACCUMULATION in reasons else None,
        most_samples=max(min(early, default=math.inf), ran),
        refused=frozenset((c.stage, c.knobs) for c, reason in known if reason == _REFUSED),
    )


def refusals(history: History) -> list[Observation]:
    """The runs that dsopt refused because the script has its own size."""
    return [o for o in history.everything if o.reason in (_BATCH, _ACCUMULATION)]
