"""An Optuna sampler for few, expensive trials: it learns from all of them where the next is worth most."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from dsopt.optuna.candidates import best_point, next_start
from dsopt.optuna.encoding import Row, SearchSpace
from dsopt.optuna.evidence import Evidence, evidence
from dsopt.optuna.worth import Worth

Array = NDArray[np.float64]

_ANCHORS: Final = 5  # the best trials, around which it looks


class XGBoostSampler(BaseSampler):
    """Chooses the point with the largest expected improvement × probability that it is feasible and runs.

    A Gaussian process predicts the points between the trials, and boosted trees (XGBoost) correct its errors. The
    sampler chooses the parameters that all trials have at once; one that only some trials have, it chooses given those
    that its trial already has. What it learns from each trial of `study.trials` depends on how the trial ended:

    - completed: its value, and its constraints (`trial.set_constraint`) if there are any;
    - pruned: its constraints, and its last reported value, as no better than half of the completed trials;
    - failed, or pruned before it reported anything: a point that came to nothing, as those near it may. It never gets a
      value;
    - running: as if it came out as expected, so that parallel workers try different points.

    In a discrete space of at most 4,096 points, it tries no point again while others are left.

    Args:
        n_startup_trials: trials that are spread evenly before the models are asked.
        seed: of everything random; None: another one each time.

    Raises:
        ValueError: `n_startup_trials` is below 1; from every method, if the study has several objectives.
    """

    def __init__(self, *, n_startup_trials: int = 8, seed: int | None = None) -> None:
        if n_startup_trials < 1:
            raise ValueError(f"n_startup_trials is {n_startup_trials}; it must be at least 1")
        self._n_startup_trials = n_startup_trials
        self._random = np.random.default_rng(seed)
        self._start_seed = int(self._random.integers(2**32))
        self._spaces = IntersectionSearchSpace(include_pruned=True)
        self._chosen: dict[int, Mapping[str, Any]] = {}  # of running trials, before they have suggested it all
        self._lock = threading.RLock()

    def reseed_rng(self) -> None:
        """Begins a new sequence of random numbers, as Optuna asks for in parallel workers."""
        self._random = np.random.default_rng()
        self._start_seed = int(self._random.integers(2**32))

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that all trials so far have, with the same distributions."""
        self._raise_error_if_multi_objective(study)
        with self._lock:
            found = self._spaces.calculate(study)
        return {name: distribution for name, distribution in found.items() if not distribution.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The parameters that a trial should have: the first proposal that nobody else has claimed."""
        self._raise_error_if_multi_objective(study)
        if not search_space:
            return {}
        with self._lock:
            for params in self.proposals(study, trial, search_space):
                if self.claim(params, trial):
                    self._chosen[trial.number] = params
                    return params
        raise self.nothing_to_claim()

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's interface
        """A parameter that some trials do not have, given those that this trial already has."""
        self._raise_error_if_multi_objective(study)
        with self._lock:
            one = SearchSpace.of({param_name: param_distribution})
            given = {name: value for name, value in trial.distributions.items() if not value.single()}
            space = SearchSpace.of({**given, param_name: param_distribution})
            known = self._evidence(study, trial, space)
            if known.count < self._n_startup_trials:
                row: Row = tuple(one.values(self._random.random((1, 1)))[0].tolist())
            else:
                row = self._best_given(space, one, known, trial)
            return one.params(row)[param_name]

    def proposals(
        self, study: Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> Iterable[dict[str, Any]]:
        """Parameters for a trial, best first; a subclass with its own candidates overrides this."""
        space = SearchSpace.of(search_space)
        known = self._evidence(study, trial, space)
        if known.count < self._n_startup_trials:
            shift = np.random.default_rng(self._start_seed).random(len(space.axes))
            row = next_start(space, trial.number, shift, known.tried)
        else:
            row = best_point(space, Worth.of(space, known, trial.number), _anchors(known), known.tried, self._random)
        yield space.params(row)

    def claim(self, params: Mapping[str, Any], trial: FrozenTrial) -> bool:
        """Whether a trial may have these parameters; a subclass that shares work with others overrides this."""
        return True

    def nothing_to_claim(self) -> Exception:
        """The exception to raise when others have claimed every proposal."""
        return RuntimeError("others have claimed every point that is left")

    def _evidence(self, study: Study, trial: FrozenTrial, space: SearchSpace) -> Evidence:
        trials = study.get_trials(deepcopy=False)
        running = [t for t in trials if t.state == TrialState.RUNNING]
        self._chosen = {t.number: self._chosen[t.number] for t in running if t.number in self._chosen}
        others = [{**self._chosen.get(t.number, {}), **t.params} for t in running if t.number != trial.number]
        rows = [space.row(params) for params in others]
        return evidence(
            space,
            [t for t in trials if t.state.is_finished()],
            [row for row in rows if row is not None],
            maximize=study.direction == StudyDirection.MAXIMIZE,
        )

    def _best_given(self, space: SearchSpace, one: SearchSpace, known: Evidence, trial: FrozenTrial) -> Row:
        """The best value of the last parameter of a space, given the trial's values of those before it."""
        given = SearchSpace(space.axes[:-1]).row(trial.params)
        assert given is not None, "a trial's parameters are of its own distributions"
        worth = Worth.of(space, known, trial.number)

        def of_one(values: Array) -> Array:
            return worth(np.column_stack([np.tile(np.array(given), (len(values), 1)), values]))

        tried = {row[-1:] for row in known.tried if row[:-1] == given}
        return best_point(one, of_one, _anchors(known)[:, -1:], tried, self._random)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()


def _anchors(known: Evidence) -> Array:
    best: Array = known.scored[np.argsort(-known.scores, kind="stable")[:_ANCHORS]]
    return best
