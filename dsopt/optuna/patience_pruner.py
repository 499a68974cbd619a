"""A pruner that ends a search which has stopped finding anything better."""

from collections.abc import Callable, Iterable

from optuna.pruners import BasePruner
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState


class PatiencePruner(BasePruner):
    """Prunes once the last `patience` trials have brought nothing better.

    Ask it before a trial costs anything:

        if trial.should_prune():
            raise optuna.TrialPruned

    It takes trials in the order of their numbers and ignores those that still run. A trial that violates a constraint
    is not better, whatever its value.

    Args:
        patience: how many, at least 1.
        counts: whether an ended trial spends patience; by default, all do except those that were pruned before they
            reported a value or a constraint, because those cost nothing. A trial that does not count may still be the
            best.

    Raises:
        ValueError: `patience` is below 1.
    """

    def __init__(self, patience: int, *, counts: Callable[[FrozenTrial], bool] | None = None) -> None:
        if patience < 1:
            raise ValueError(f"patience is {patience}; it must be at least 1")
        self._patience = patience
        self._counts = counts or was_run

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the study's patience is spent.

        Raises:
            ValueError: the study has several objectives.
        """
        if len(study.directions) > 1:
            raise ValueError("PatiencePruner cannot tell which trial is better when there are several objectives")
        sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
        ended = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished() and t.number != trial.number]
        return since_best((_score(t, sign), self._counts(t)) for t in ended) >= self._patience


def was_run(trial: FrozenTrial) -> bool:
    """Whether an ended trial cost anything: not if it was pruned before it reported a value or a constraint."""
    return trial.state != TrialState.PRUNED or trial.last_step is not None or bool(trial.constraints)


def since_best(results: Iterable[tuple[float | None, bool]]) -> int:
    """How many results count after the best one, or in total if none has a score.

    Args:
        results: for each, its score (larger is better) or None, and whether it counts.
    """
    patience = SinceBest()
    for score, counts in results:
        patience.note(score, counts)
    return patience.since


class SinceBest:
    """The same, one result after the other.

    Attributes:
        since: how many count after the best one.
        best: the best score; None if none has one.
    """

    def __init__(self) -> None:
        self.since = 0
        self.best: float | None = None

    def note(self, score: float | None, counts: bool) -> None:
        """Takes in one more result."""
        if score is not None and (self.best is None or score > self.best):
            self.since, self.best = 0, score
        elif counts:
            self.since += 1


def _score(trial: FrozenTrial, sign: float) -> float | None:
    is_feasible = all(value <= 0 for value in trial.constraints.values())
    if trial.state != TrialState.COMPLETE or trial.value is None or not is_feasible:
        return None
    return sign * trial.value
