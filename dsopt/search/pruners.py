"""Sets up the pruners of `dsopt.optuna` for a study: with its memory model, and with which of its runs count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsopt.optuna import MemoryPruner
from dsopt.optuna.patience_pruner import since_best
from dsopt.search.history import History, Observation
from dsopt.search.memory import MemoryModel
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


def runs_since_best(history: History, observations: Sequence[Observation]) -> int:
    """How many runs have ended since the best one; an imported or taken-over trial may be best, but is not a run."""
    return since_best((None if o.value is None else history.score(o), _counts(o)) for o in observations)


def _counts(observation: Observation) -> bool:
    return observation.state != "running" and observation.is_spent
