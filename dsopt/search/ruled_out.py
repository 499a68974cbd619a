"""What runs have shown that no candidate needs to be tried with: sizes, and stages with their settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.tally import Tally, tallies
from dsopt.study.ds_config import baseline_config
from dsopt.study.own_settings import is_own_value, settings_in
from dsopt.study.own_sizes import own_size
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate, Setting
from dsopt.study.spec import StudySpec

_BATCH: Final = "fixed_batch"
_ACCUMULATION: Final = "fixed_accumulation"
_OWN_SIZES: Final = (_BATCH, _ACCUMULATION)
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
        own_settings: paths in DeepSpeed's configuration that the script sets by itself, whatever it is given.
        own_config: the user's own configuration, which they stay with.
    """

    micro_batch: int | None
    gas: int | None
    most_samples: float
    refused: frozenset[tuple[int, Setting]]
    own_settings: frozenset[str]
    own_config: Mapping[str, Any]

    def allow(self, candidate: Candidate) -> bool:
        """Whether a candidate may be tried."""
        return (
            self.micro_batch in (None, candidate.micro_batch)
            and self.gas in (None, candidate.gas)
            and candidate.micro_batch * candidate.gas <= self.most_samples
            and (candidate.stage, candidate.knobs) not in self.refused
            and all(
                is_own_value(self.own_config, key, value) for key, value in candidate.knobs if key in self.own_settings
            )
        )


def ruled_out(spec: StudySpec, history: History, facts: ModelFacts) -> RuledOut:
    """What the runs of a study have shown; sizes that a script keeps are those of the user's own run."""
    shown = tallies(history, _Shown)
    reasons = set[str]().union(*(one.sizes for one in shown))
    baseline = history.find(BASELINE)
    is_measured = baseline is not None and baseline.facts is not None
    micro_batch = facts.micro_batch if is_measured else own_size(spec, MICRO_BATCH)
    gas = facts.gas if is_measured else own_size(spec, ACCUMULATION)
    candidates = shown[1:]
    early = (one.least_too_many / 2 for one in candidates if is_measured)
    ran = max(one.most_ran for one in shown)
    return RuledOut(
        micro_batch=micro_batch if _BATCH in reasons else None,
        gas=gas if _ACCUMULATION in reasons else None,
        most_samples=max(min(early, default=math.inf), ran),
        refused=frozenset[tuple[int, Setting]]().union(*(one.refused for one in candidates)),
        own_settings=frozenset[str]().union(*(one.own_settings for one in shown)),
        own_config=baseline_config(spec.ds_config),
    )


def refusals(history: History) -> list[Observation]:
    """The runs that dsopt refused because the script has its own size."""
    return [o for o in history.everything if o.reason in _OWN_SIZES]


class _Shown(Tally):
    """What runs have shown.

    Attributes:
        sizes: the reasons that dsopt refused runs for, of those that say that the script has its own size.
        least_too_many: the fewest samples of one rank in a step that the script's data were too few for.
        most_ran: the most samples of one rank in a step that ran.
        refused: what DeepSpeed has refused.
        own_settings: the settings that the script was seen to set by itself.
    """

    def __init__(self) -> None:
        self.sizes: set[str] = set()
        self.least_too_many = math.inf
        self.most_ran = 0
        self.refused: set[tuple[int, Setting]] = set()
        self.own_settings: set[str] = set()

    def add(self, run: Observation) -> None:
        candidate = run.candidate
        if run.engine is not None:
            self.own_settings.update(settings_in(run.engine.own_settings))
        if run.reason in _OWN_SIZES:
            self.sizes.add(run.reason)
        elif run.reason in _TOO_FEW and candidate is not None:
            self.least_too_many = min(self.least_too_many, candidate.micro_batch * candidate.gas)
        elif run.reason == _REFUSED and candidate is not None:
            self.refused.add((candidate.stage, candidate.knobs))
        if run.facts is not None:
            self.most_ran = max(self.most_ran, run.facts.micro_batch * run.facts.gas)
