"""Sets up the pruners of `dsopt.optuna` for a study: with its memory model, and with which of its runs count."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsopt.optuna import MemoryPruner
from dsopt.optuna.patience_pruner import SinceBest, since_best
from dsopt.search.history import History, Observation
from dsopt.search.memory import MemoryModel
from dsopt.search.nodes import NodeEffect, effect_on
from dsopt.search.places import places_of
from dsopt.search.tally import Tally, tally
from dsopt.study.space import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Asks the memory model about a trial's parameters, at one stage."""

    model: MemoryModel
    stage: int

    def fits(self, params: Mapping[str, Any]) -> bool:
        """Whether the candidate that has these parameters may run."""
        return self.model.fits(Candidate.from_params(self.stage, params))


def memory_pruner(model: MemoryModel, stage: int) -> MemoryPruner:
    """Prunes what almost certainly does not fit."""
    return MemoryPruner(model=StageMemory(model=model, stage=stage))


def runs_since_best(
    history: History, observations: Sequence[Observation], elsewhere: Mapping[str, NodeEffect] | None = None
) -> int:
    """How many runs have ended since the best one; an imported or taken-over trial may be best, but is not a run.

    Args:
        history: of the study.
        observations: in the order in which they ended.
        elsewhere: how much faster or slower figures from elsewhere are than the study's own.
    """

    def score(o: Observation) -> float | None:
        if o.value is None or o.value <= 0:
            return None
        better = effect_on(places_of(o), elsewhere or {}).mean
        return (math.log(o.value) if history.maximize else -math.log(o.value)) - better

    return since_best((score(o), _counts(o)) for o in observations)


def runs_since_best_of(history: History, stage: int) -> int:
    """The same of the runs of one stage, in the order in which they began."""
    return tally(history, stage, _SinceLargest if history.maximize else _SinceSmallest).since


class _SinceLargest(Tally, SinceBest):
    _sign = 1.0

    def add(self, run: Observation) -> None:
        self.note(None if run.value is None else self._sign * run.value, _counts(run))


class _SinceSmallest(_SinceLargest):
    _sign = -1.0


def _counts(observation: Observation) -> bool:
    return observation.state != "running" and observation.is_spent
