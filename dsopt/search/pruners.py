"""Pruners that refuse a trial before it costs a run: it cannot fit, or its stage has stopped improving."""

from collections.abc import Sequence

from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial

from dsopt.search.history import History, Observation
from dsopt.search.memory import MemoryModel
from dsopt.study.space import Candidate


class MemoryPruner(BasePruner):
    """Prunes a trial whose predicted peak memory exceeds the device's, or that a smaller one's OOM rules out."""

    def __init__(self, model: MemoryModel, stage: int) -> None:
        self._model = model
        self._stage = stage

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial's candidate cannot fit."""
        return not self._model.fits(Candidate.from_params(self._stage, trial.params))


class EarlyStoppingPruner(BasePruner):
    """Prunes once the last `patience` runs of the stage have brought nothing better (`tuner_early_stopping`)."""

    def __init__(self, history: History, stage: int, patience: int) -> None:
        self._history = history
        self._stage = stage
        self._patience = patience

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the stage's patience is spent."""
        return runs_since_best(self._history, self._history.stages[self._stage]) >= self._patience


def runs_since_best(history: History, observations: Sequence[Observation]) -> int:
    """How many runs have ended since the best one; what was imported or taken over may be the best, but is no run."""
    since, best = 0, None
    for observation in observations:
        if observation.value is not None and (best is None or history.score(observation) > best):
            since, best = 0, history.score(observation)
        elif observation.state != "running" and observation.is_spent:
            since += 1
    return since
