"""Our Optuna sampler: it chooses among enumerated candidates and claims the one it returns."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from dsopt.search.forecast import Forecast
from dsopt.search.history import Observation
from dsopt.search.optuna_samplers import suggested_first
from dsopt.study.autotuning import OPTUNA_SAMPLERS
from dsopt.study.space import ACCUMULATION, LARGEST, MICRO_BATCH, Candidate, StageSpace


class NothingToClaim(Exception):  # noqa: N818 - not an error: other workers were faster
    """Every candidate was claimed by others in the meantime."""


class CandidateSampler(BaseSampler):
    """Gives each trial the first candidate, in the order of `tuner_type`, that it can claim.

    Args:
        candidates: what may be tried now, in the order of enumeration.
        space: the stage's space, which they are from.
        tuner_type: `gridsearch` keeps that order, `random` shuffles it with the trial's number as the seed,
            `model_based` puts first what is worth most (`Outlook.worth`), and the names of Optuna's samplers what those
            suggest.
        observations: of all stages, for Optuna's samplers.
        forecast: what `model_based` judges by; without one it keeps the order.
        maximize: whether a larger metric is better.
        claim: claims a candidate for a trial's number; False when it is somebody's already.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        space: StageSpace,
        *,
        tuner_type: str,
        observations: Sequence[Observation],
        maximize: bool,
        claim: Callable[[Candidate, int], bool],
        forecast: Forecast | None = None,
    ) -> None:
        self._candidates = candidates
        self._space = space
        self._tuner_type = tuner_type
        self._observations = observations
        self._maximize = maximize
        self._claim = claim
        self._others = RandomSampler(seed=0)
        self._forecast = forecast

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The distributions of the candidates' parameters; nothing where there are no candidates."""
        return distributions(self._space) if self._candidates else {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The parameters of the candidate that is now this trial's.

        Raises:
            NothingToClaim: others have claimed them all.
        """
        if not search_space:
            return {}
        for candidate in self._ordered(trial.number):
            if self._claim(candidate, trial.number):
                return dict(candidate.params)
        raise NothingToClaim

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401 - Optuna's interface
        """A parameter that is none of the tuning space, at random: a candidate gives all of the space's at once."""
        return self._others.sample_independent(study, trial, param_name, param_distribution)

    def _ordered(self, trial_number: int) -> Sequence[Candidate]:
        if self._tuner_type == "gridsearch":
            return self._candidates
        if self._tuner_type == "random":
            return random.Random(trial_number).sample(self._candidates, len(self._candidates))  # noqa: S311
        if self._tuner_type in OPTUNA_SAMPLERS:
            here = [o for o in self._observations if o.candidate and o.candidate.stage == self._space.stage]
            return suggested_first(self._tuner_type, self._candidates, here, maximize=self._maximize, seed=trial_number)
        return ranked(self._candidates, self._forecast)


def ranked(candidates: Sequence[Candidate], forecast: Forecast | None) -> Sequence[Candidate]:
    """Candidates by their worth (`Outlook.worth`); in their order without a forecast."""
    if forecast is None:
        return candidates
    best_first = np.argsort(-forecast.of(candidates).worth, kind="stable")
    return [candidates[int(index)] for index in best_first]


def distributions(space: StageSpace) -> dict[str, BaseDistribution]:
    """The parameters of a stage's trials as Optuna's distributions, the same for every trial of it."""
    sizes: Mapping[str, BaseDistribution] = {
        MICRO_BATCH: IntDistribution(1, LARGEST, log=True),
        ACCUMULATION: IntDistribution(1, LARGEST, log=True),
    }
    return {**sizes, **{key: CategoricalDistribution(values) for key, values in space.knobs.items()}}
